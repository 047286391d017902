// KernelTable: one table of plain functions per instruction set. Kernels work on raw pointers,
// single-threaded over a range, with no STL inside, so that one source can be compiled once per
// ISA. Private to ops and attention. A faster table starts as a copy of the one below it and
// replaces what it has. Constant; thread-safe. To add a kernel: a member here,
// reference/<topic>.cc, then cpu/<isa> where it pays.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tenon/base/machine_profile.h"
#include "tenon/kernels/attention_kernels.h"
#include "tenon/numeric/dtype.h"

namespace tenon {

// y[t * y_stride + r] = dot(w row r, x row t) + bias[r] for r in [row_begin, row_end).
struct MatmulKernelArgs {
  const std::byte* w = nullptr;  // [rows, cols], row_bytes apart
  int64_t row_bytes = 0;
  int64_t cols = 0;
  const float* bias = nullptr;  // [rows] or null
  const float* x = nullptr;     // [num_tokens, cols], x_stride floats apart
  int64_t x_stride = 0;
  int64_t num_tokens = 0;
  float* y = nullptr;  // [num_tokens, rows], y_stride floats apart
  int64_t y_stride = 0;
};
using MatmulKernel = void (*)(const MatmulKernelArgs& args, int64_t row_begin, int64_t row_end,
                              float* scratch);

struct NormKernelArgs {
  const float* weight = nullptr;  // [width] or null
  const float* bias = nullptr;    // [width] or null
  float weight_offset = 0;
  float eps = 0;
  int64_t width = 0;
};

enum class ActivationCode : int32_t {
  kNone,
  kSilu,
  kGelu,
  kGeluTanh,
  kQuickGelu,
  kRelu,
  kRelu2,
  kSigmoid,
  kTanh
};

struct RouteKernelArgs {
  int32_t experts = 0, top_k = 0, groups = 1, kept_groups = 1;
  bool sigmoid = false;  // scores: sigmoid, else softmax
  bool softmax_of_chosen = false;
  bool renormalise = false;
  bool group_score_top2 = false;
  float renormalise_eps = 0, scale = 1, masked_score = 0;
  const float* choice_bias = nullptr;  // [experts] or null
};

struct ScanKernelArgs {
  int64_t head_dim = 0, state_size = 0;
  float decay = 0;  // -exp(a_log) of the head
  float d = 0;
  float dt_bias = 0, dt_min = 0, dt_max = 0;
  const float* x = nullptr;   // [rows, head_dim], x_stride apart
  const float* b = nullptr;   // [rows, state_size], b_stride apart
  const float* c = nullptr;   // [rows, state_size], c_stride apart
  const float* dt = nullptr;  // [rows], dt_stride apart
  int64_t x_stride = 0, b_stride = 0, c_stride = 0, dt_stride = 0;
  float* y = nullptr;  // [rows, head_dim], y_stride apart
  int64_t y_stride = 0;
  float* state = nullptr;  // [head_dim, state_size]
};

struct KernelTable {
  const char* name = "";
  Isa isa = Isa::kReference;

  // One per weight dtype; null: no kernel. scratch: [cols] floats.
  MatmulKernel matmul[32] = {};
  const char* matmul_names[32] = {};

  // y = norm(x) over width numbers; in place allowed.
  void (*rms_norm)(const NormKernelArgs& args, const float* x, float* y);
  void (*layer_norm)(const NormKernelArgs& args, const float* x, float* y);
  void (*activate)(ActivationCode code, const float* x, float* y, int64_t n);
  void (*gated_activate)(ActivationCode code, const float* gate, const float* up, float* y,
                         int64_t n);
  // cos_sin: [half] cosines then [half] sines of position * inv_freq[i], times factor.
  void (*rope_angles)(int32_t position, const float* inv_freq, float factor, int64_t half,
                      float* cos_sin);
  // One head: pairs (j, j + half) or (2j, 2j + 1).
  void (*rope_half)(float* x, const float* cos_sin, int64_t half);
  void (*rope_interleaved)(float* x, const float* cos_sin, int64_t half);
  // One token: logits [experts] -> chosen [top_k], weights [top_k]. scratch: [2 * experts + groups]
  // floats.
  void (*route)(const RouteKernelArgs& args, const float* logits, int32_t* chosen, float* weights,
                float* scratch);
  // rows of one channel range: history [width - 1] precedes x. See ops/recurrent.h.
  void (*selective_scan)(const ScanKernelArgs& args, int64_t rows);

  AttentionKernels attention = {};
};

const KernelTable& ReferenceKernels();

}  // namespace tenon
