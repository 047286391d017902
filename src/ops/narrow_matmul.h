// Which kernel a product takes, and matmuls with narrow activations: packs an input once per form
// and records the products that read it. Private to the ops of matmuls. Family code's thread only.
#pragma once

#include <optional>
#include <span>

#include "tenon/ops/matmul.h"

namespace tenon {

// Of kernels/matmul_kernels.h, which is not installed.
enum class ActivationForm : uint8_t;
struct FewTokensKernel;
struct MatmulKernelArgs;
struct PanelArgs;
template <typename Function>
struct Kernel;
using PanelKernel =
    Kernel<void(const PanelArgs&, int64_t, int64_t token_begin, int64_t token_end, std::byte*)>;

using Fp32Kernel =
    Kernel<void(const MatmulKernelArgs&, int64_t row_begin, int64_t row_end, float* scratch)>;

// Our own bugs: codes without scales, scales of what are none or that no kernel reads.
void CheckScales(const MatrixRef& w);
// The kernel for the matrix's rows and fp32 activations; null: there is none.
const Fp32Kernel& Fp32KernelOf(const KernelTable& kernels, const MatrixRef& w);
// Are activations to be rounded to int8 per token, and does the table have a kernel for it?
bool RoundsToInt8(const KernelTable& kernels, const MatrixRef& w);
// Whether both matrices go through one kernel, whatever the number of tokens.
bool HaveOneKernel(const KernelTable& kernels, const MatrixRef& a, const MatrixRef& b);

// So many tokens read the weights row by row; more of them pay for expanding panels.
inline constexpr int64_t kFewTokens = 8;
// The kernels for a matrix as it is held.
const FewTokensKernel& FewOf(const KernelTable& kernels, const MatrixRef& w);
const PanelKernel& PanelsFor(const KernelTable& kernels, const MatrixRef& w);
// Is the product to be computed with narrow activations, and does the table have a kernel for it?
bool IsNarrow(const KernelTable& kernels, const MatrixRef& w, int64_t num_tokens);
// Of narrow ones: does it read packed rows of activations (NarrowMatmul::Packed), or blocks?
bool ReadsRows(const KernelTable& kernels, const MatrixRef& w, int64_t num_tokens);
// Rows that a kernel of few tokens takes at least.
int64_t GroupRowsOf(const MatrixRef& w);
// Groups of `w` (and of others, `group_bytes` together) handed out at a time: a few claims for each
// thread, but never less than a stretch of memory that is worth reading at once.
int64_t FewGrain(const MatrixRef& w, int64_t groups, int64_t group_bytes);
// Tokens of a part: whole blocks, few enough that narrow matrices have items to share out, and that
// a part's inputs stay in a core's L2 while all panels meet them; each part expands its panels
// again, so parts stay large. Items are panel after panel, part after part.
int64_t PartTokens(const KernelTable& kernels, int64_t panels, int64_t cols, int64_t num_tokens);

// Records y [num_tokens, sum of rows] = blocks of tokens, as NarrowMatmul::Blocks, times the
// segments (of one kernel).
void MultiplyBlocks(Tape& tape, std::span<const MatrixRef> segments, const Value& blocks,
                    const Value& y);

class NarrowMatmul {
 public:
  // x [num_tokens, cols] fp32.
  NarrowMatmul(Tape& tape, const Value& x) : tape_(tape), x_(x) {}

  // Records y = x times the segments (of one kernel). False: they are not narrow.
  bool Record(std::span<const MatrixRef> segments, const Value& y);

  // The input as rows of the form, or as blocks of tokens.
  Value Packed(ActivationForm form);
  Value Blocks();

 private:
  Tape& tape_;
  Value x_;
  std::optional<Value> packed_[5];  // by ActivationForm
  std::optional<Value> blocks_;
};

}  // namespace tenon
