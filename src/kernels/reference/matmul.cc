#include "tenon/kernels/reference/reference.h"
#include "tenon/numeric/decode.h"

namespace tenon::reference {
namespace {

// Sixteen independent sums: exact enough, and a shape that compilers vectorise without reordering.
// Taking several tokens at once was tried and is not faster.
float Dot(const float* a, const float* b, int64_t n) {
  constexpr int64_t kLanes = 16;
  float sums[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t l = 0; l < kLanes; ++l) sums[l] += a[i + l] * b[i + l];
  }
  for (int64_t l = 0; i < n; ++i, ++l) sums[l] += a[i] * b[i];
  for (int64_t step = kLanes / 2; step > 0; step /= 2) {
    for (int64_t l = 0; l < step; ++l) sums[l] += sums[l + step];
  }
  return sums[0];
}

// All tokens with row r, decoded [cols].
void MultiplyRow(const MatmulKernelArgs& a, int64_t r, const float* row) {
  const float bias = a.bias == nullptr ? 0.0f : a.bias[r];
  for (int64_t t = 0; t < a.num_tokens; ++t) {
    a.y[t * a.y_stride + r] = Dot(row, a.x + t * a.x_stride, a.cols) + bias;
  }
}

template <DType kDType>
void Matmul(const MatmulKernelArgs& a, int64_t row_begin, int64_t row_end, float* scratch) {
  const DecodeRowFn decode = DecoderOf(kDType);
  for (int64_t r = row_begin; r < row_end; ++r) {
    decode(a.w + r * a.row_bytes, a.cols, scratch);
    MultiplyRow(a, r, scratch);
  }
}

template <DType kDType>
void DecodeCodes(const std::byte* row, int64_t cols, float* out) {
  if constexpr (kDType == DType::kI8) {
    for (int64_t c = 0; c < cols; ++c) out[c] = static_cast<float>(static_cast<int8_t>(row[c]));
  } else {
    DecoderOf(kDType)(row, cols, out);
  }
}

template <DType kDType>
void ScaledMatmul(const MatmulKernelArgs& a, int64_t row_begin, int64_t row_end, float* scratch) {
  for (int64_t r = row_begin; r < row_end; ++r) {
    DecodeCodes<kDType>(a.w + r * a.row_bytes, a.cols, scratch);
    const float* scales = a.scales.Row(r);
    for (int64_t c = 0; c < a.cols; ++c) scratch[c] *= scales[c / a.scales.grid.cols];
    MultiplyRow(a, r, scratch);
  }
}

template <DType kDType>
void AddMatmul(MatmulKernels& matmul, const char* name) {
  matmul.of[static_cast<int>(kDType)] = {Matmul<kDType>, name};
}

template <DType kDType>
void AddScaled(MatmulKernels& matmul, const char* name) {
  matmul.scaled[static_cast<int>(kDType)].fp32 = {ScaledMatmul<kDType>, name};
}

}  // namespace

void AddMatmuls(MatmulKernels& matmul) {
  AddMatmul<DType::kF64>(matmul, "reference/matmul_f64");
  AddMatmul<DType::kF32>(matmul, "reference/matmul_f32");
  AddMatmul<DType::kBF16>(matmul, "reference/matmul_bf16");
  AddMatmul<DType::kF16>(matmul, "reference/matmul_f16");
  AddMatmul<DType::kF8E4M3>(matmul, "reference/matmul_f8_e4m3");
  AddMatmul<DType::kF8E5M2>(matmul, "reference/matmul_f8_e5m2");
  AddMatmul<DType::kF8E8M0>(matmul, "reference/matmul_f8_e8m0");
  AddMatmul<DType::kQ4_0>(matmul, "reference/matmul_q4_0");
  AddMatmul<DType::kQ4_1>(matmul, "reference/matmul_q4_1");
  AddMatmul<DType::kQ8_0>(matmul, "reference/matmul_q8_0");
  AddMatmul<DType::kQ6_K>(matmul, "reference/matmul_q6_k");
  AddMatmul<DType::kQ4_K>(matmul, "reference/matmul_q4_k");
  AddScaled<DType::kF8E4M3>(matmul, "reference/matmul_f8_e4m3_scaled");
  AddScaled<DType::kI8>(matmul, "reference/matmul_i8_scaled");
}

}  // namespace tenon::reference
