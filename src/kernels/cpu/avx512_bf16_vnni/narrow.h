// What this instruction set adds to the table: products with narrow activations. Private to the
// folder.
#pragma once

#include "tenon/kernels/table.h"

namespace tenon::avx512_bf16_vnni {

// A block is [cols / 2][6 tokens] of bf16 pairs.
inline constexpr int64_t kBlockTokens = 6;
constexpr int64_t BlockBytes(int64_t cols) { return kBlockTokens * 2 * ((cols + 1) / 2 * 2); }

// x: tokens [0, tokens) of a block, as PackBlockFunction.
void PackBlock(const float* x, int64_t x_stride, int64_t tokens, int64_t cols, std::byte* block);

void AddPacking(MatmulKernels& matmul);
void AddBlockRows(MatmulKernels& matmul);
void AddKRows(MatmulKernels& matmul);
void AddBf16Rows(MatmulKernels& matmul);
void AddF8Rows(MatmulKernels& matmul);
void AddInt8Rows(MatmulKernels& matmul);
void AddPanels(MatmulKernels& matmul);
void AddPackWeights(MatmulKernels& matmul);
void AddPackedRows(MatmulKernels& matmul);
void AddAttendBlocks(AttentionKernels& attention);

}  // namespace tenon::avx512_bf16_vnni
