// Weights to fp32, sixteen at a time: elementwise types from any offset, block types a block at a
// time. For the sources of this folder only. Thread-safe.
#pragma once

#include "tenon/kernels/cpu/simd.h"
#include "tenon/numeric/blocks/q4_0.h"
#include "tenon/numeric/blocks/q4_1.h"
#include "tenon/numeric/blocks/q4_k.h"
#include "tenon/numeric/blocks/q6_k.h"
#include "tenon/numeric/blocks/q8_0.h"

namespace tenon::TN_ISA {
namespace {

// kElements numbers at `p`, which may sit at any byte address -> out.
struct DecodeF32 {
  static constexpr int64_t kElements = kLanes, kBytes = 4 * kLanes, kOne = 4;
  TN_INLINE static void Run(const std::byte* p, F32* out) { out[0] = LoadAs<F32>(p); }
};
struct DecodeBf16 {
  static constexpr bool kBf16 = true;
  static constexpr int64_t kElements = kLanes, kBytes = 2 * kLanes, kOne = 2;
  TN_INLINE static void Run(const std::byte* p, F32* out) { out[0] = FromBf16(LoadAs<Words16>(p)); }
};
struct DecodeF16 {
  static constexpr int64_t kElements = kLanes, kBytes = 2 * kLanes, kOne = 2;
  TN_INLINE static void Run(const std::byte* p, F32* out) { out[0] = FromF16(LoadAs<Words16>(p)); }
};
struct DecodeQ4_0 {
  static constexpr int64_t kElements = 32, kBytes = sizeof(BlockQ4_0), kOne = 0;
  TN_INLINE static void Run(const std::byte* p, F32* out) {
    const float d = HalfToFloat(LoadAs<uint16_t>(p));
    const auto q = LoadAs<Bytes16>(p + offsetof(BlockQ4_0, qs));
    out[0] = (ToFloats(q & 15) - 8.0f) * d;
    out[1] = (ToFloats(q >> 4) - 8.0f) * d;
  }
};
struct DecodeQ4_1 {
  static constexpr int64_t kElements = 32, kBytes = sizeof(BlockQ4_1), kOne = 0;
  TN_INLINE static void Run(const std::byte* p, F32* out) {
    const F32 d = All(HalfToFloat(LoadAs<uint16_t>(p)));
    const F32 m = All(HalfToFloat(LoadAs<uint16_t>(p + offsetof(BlockQ4_1, m))));
    const auto q = LoadAs<Bytes16>(p + offsetof(BlockQ4_1, qs));
    out[0] = Fma(ToFloats(q & 15), d, m);
    out[1] = Fma(ToFloats(q >> 4), d, m);
  }
};
struct DecodeQ8_0 {
  static constexpr int64_t kElements = 32, kBytes = sizeof(BlockQ8_0), kOne = 0;
  TN_INLINE static void Run(const std::byte* p, F32* out) {
    const float d = HalfToFloat(LoadAs<uint16_t>(p));
    const std::byte* q = p + offsetof(BlockQ8_0, qs);
    out[0] = ToFloats(LoadAs<SignedBytes16>(q)) * d;
    out[1] = ToFloats(LoadAs<SignedBytes16>(q + 16)) * d;
  }
};
struct DecodeQ6K {
  static constexpr int64_t kElements = 256, kBytes = sizeof(BlockQ6K), kOne = 0;
  TN_INLINE static void Run(const std::byte* p, F32* out) {
    const float d = HalfToFloat(LoadAs<uint16_t>(p + offsetof(BlockQ6K, d)));
    for (int i = 0; i < 16; ++i) {  // sixteen values of one scale
      const int half = i / 8;
      const int part = i % 8 / 2;
      const int begin = i % 2 * 16;
      const auto low = LoadAs<Bytes16>(p + 64 * half + 32 * (part % 2) + begin);
      const auto high = LoadAs<Bytes16>(p + offsetof(BlockQ6K, qh) + 32 * half + begin);
      const Bytes16 q = ((part < 2 ? low & 15 : low >> 4)) | (((high >> (2 * part)) & 3) << 4);
      const auto scale = LoadAs<int8_t>(p + offsetof(BlockQ6K, scales) + i);
      out[i] = (ToFloats(q) - 32.0f) * (d * static_cast<float>(scale));
    }
  }
};

struct DecodeQ4K {
  static constexpr int64_t kElements = 256, kBytes = sizeof(BlockQ4K), kOne = 0;
  TN_INLINE static void Run(const std::byte* p, F32* out) {
    const auto block = LoadAs<BlockQ4K>(p);
    const float d = HalfToFloat(block.d);
    const float dmin = HalfToFloat(block.dmin);
    for (int group = 0; group < 8; ++group) {
      const BlockQ4K::GroupScale s = block.ScaleOf(group);
      const F32 scale = All(d * static_cast<float>(s.scale));
      const F32 minimum = All(-dmin * static_cast<float>(s.minimum));
      for (int half = 0; half < 2; ++half) {
        const auto q = LoadAs<Bytes16>(block.qs + group / 2 * 32 + half * 16);
        out[2 * group + half] = Fma(ToFloats(group % 2 == 0 ? q & 15 : q >> 4), scale, minimum);
      }
    }
  }
};

// The first n < kElements numbers of an elementwise type; the others are 0.
template <typename Decode>
TN_INLINE void DecodeFirst(const std::byte* p, int64_t n, F32* out) {
  alignas(64) std::byte rest[Decode::kBytes] = {};
  __builtin_memcpy(rest, p, static_cast<size_t>(n * Decode::kOne));
  Decode::Run(rest, out);
}

// A row of `cols` numbers -> out [cols]. Elementwise types take any number of columns.
template <typename Decode>
TN_INLINE void DecodeRow(const std::byte* row, int64_t cols, float* out) {
  F32 values[Decode::kElements / kLanes];
  int64_t i = 0;
  for (; i + Decode::kElements <= cols; i += Decode::kElements, row += Decode::kBytes) {
    Decode::Run(row, values);
    for (int64_t k = 0; k < Decode::kElements / kLanes; ++k) Store(out + i + k * kLanes, values[k]);
  }
  if constexpr (Decode::kOne > 0) {
    if (i == cols) return;
    DecodeFirst<Decode>(row, cols - i, values);
    StoreFirst(out + i, values[0], cols - i);
  }
}

}  // namespace
}  // namespace tenon::TN_ISA
