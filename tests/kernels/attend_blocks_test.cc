// Attention of many queries by blocks against the two passes in double, and that it keeps to the
// memory it asks for. Tables without it have nothing to test here.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/random_data.h"
#include "tenon/tensor/buffer.h"

namespace tenon {
namespace {

using test::At;
using test::D;
using test::Floats;

struct Case {
  int64_t k_width = 0, v_width = 0, group = 0, rows = 0, keys = 0;
  int64_t window = 0;
  DType dtype = DType::kF32;
  float scale = 1;
};

// Rows of numbers as the dtype stores them: codes, then scales, densely.
struct Packed {
  Packed(const AttentionKernels& kernels, DType dtype, float scale, const std::vector<float>& x,
         int64_t width)
      : slot(RowBytes(dtype, width)),
        scale_slot(dtype == DType::kI8       ? 4
                   : dtype == DType::kF4E2M1 ? width / 16
                                             : 0) {
    const auto rows = static_cast<int64_t>(x.size()) / width;
    codes.resize(At(rows * slot + 1));
    scales.resize(At(rows * scale_slot + 1));
    for (int64_t j = 0; j < rows; ++j) {
      kernels.store(x.data() + j * width,
                    {dtype, codes.data() + j * slot, scales.data() + j * scale_slot, scale}, width);
    }
  }
  int64_t slot = 0, scale_slot = 0;
  std::vector<std::byte> codes, scales;
};

// Memory with a margin after it that must stay as it is.
class Guarded {
 public:
  explicit Guarded(int64_t bytes)
      : bytes_(bytes), buffer_(*Buffer::Allocate(bytes + kMargin, "test")) {
    std::fill_n(buffer_.data(), buffer_.size(), kMark);
  }
  std::byte* data() { return buffer_.data(); }
  bool Kept() const {
    return std::all_of(buffer_.data() + bytes_, buffer_.data() + bytes_ + kMargin,
                       [](std::byte b) { return b == kMark; });
  }

 private:
  static constexpr int64_t kMargin = 1 << 20;
  static constexpr std::byte kMark{0x5A};
  int64_t bytes_;
  Buffer buffer_;
};

void Expect(const Case& c) {
  SCOPED_TRACE(testing::Message() << "widths " << c.k_width << ", " << c.v_width << ", group "
                                  << c.group << ", rows " << c.rows << ", keys " << c.keys << ", "
                                  << NameOf(c.dtype) << " by " << c.scale);
  const AttentionKernels& kernels = test::Kernels().attention;
  const std::vector<float> q = Floats(c.rows * c.group * c.k_width, 1);
  const std::vector<float> k = Floats(c.keys * c.k_width, 2);
  const std::vector<float> v = Floats(c.keys * c.v_width, 3);
  ScoreRules rules;
  rules.scale = 1.0f / std::sqrt(static_cast<float>(c.k_width));
  rules.causal = true;
  rules.window = c.window;
  AttendArgs a;
  const Packed packed_k(kernels, c.dtype, c.scale, k, c.k_width);
  const Packed packed_v(kernels, c.dtype, c.scale, v, c.v_width);
  a.source.dtype = c.dtype;
  a.source.k = packed_k.codes.data();
  a.source.k_slot_stride = packed_k.slot;
  a.source.v = packed_v.codes.data();
  a.source.v_slot_stride = packed_v.slot;
  a.source.k_scales = packed_k.scales.data();
  a.source.k_scale_slot_stride = packed_k.scale_slot;
  a.source.v_scales = packed_v.scales.data();
  a.source.v_scale_slot_stride = packed_v.scale_slot;
  a.source.k_scale = a.source.v_scale = c.scale;
  a.rules = &rules;
  a.group = c.group;
  a.k_width = c.k_width;
  a.v_width = c.v_width;
  a.rows = c.rows;
  a.position = c.keys - c.rows;
  a.key_end = c.keys;
  a.q = q.data();
  a.q_row_stride = c.group * c.k_width;
  a.q_head_stride = c.k_width;

  const int64_t width = StateFloats(c.v_width);
  Guarded states(4 * kAttendBlockStates * width);
  Guarded scratch(BlocksScratchBytes(c.k_width, c.v_width));
  auto* state = reinterpret_cast<float*>(states.data());
  kernels.blocks(a, {state, c.group * width, width}, scratch.data());
  EXPECT_TRUE(states.Kept()) << "states";
  EXPECT_TRUE(scratch.Kept()) << "scratch";

  std::vector<float> expected(At(c.rows * c.group * c.v_width));
  std::vector<float> floats(At(VanillaScratchFloats(c.k_width, c.v_width)) * 2);
  AttendOut out;
  out.out = expected.data();
  out.row_stride = c.group * c.v_width;
  out.head_stride = c.v_width;
  kernels.vanilla(a, out, floats.data());
  for (int64_t i = 0; i < c.rows * c.group; ++i) {
    const float* sums = state + i * width;
    for (int64_t d = 0; d < c.v_width; ++d) {
      // Weights and values are off by 2^-9 of themselves; values are up to 1.
      ASSERT_NEAR(D(sums[d]) / D(sums[c.v_width + 1]), D(expected[At(i * c.v_width + d)]), 4e-3)
          << "query " << i << " column " << d;
    }
  }
}

TEST(AttendBlocks, MatchTheTwoPasses) {
  if (test::Kernels().attention.blocks == nullptr) return;
  for (const auto& [k_width, v_width] : std::vector<std::pair<int64_t, int64_t>>{{1, 1},
                                                                                 {20, 33},
                                                                                 {64, 64},
                                                                                 {100, 16},
                                                                                 {128, 128},
                                                                                 {192, 128},
                                                                                 {600, 256},
                                                                                 {1024, 1024}}) {
    for (const auto& [group, rows] : std::vector<std::pair<int64_t, int64_t>>{
             {1, 1}, {1, 128}, {3, 42}, {8, 5}, {kAttendBlockQueries, 1}}) {
      for (const int64_t keys : {rows, rows + 1, rows + 127, rows + 300}) {
        Expect({k_width, v_width, group, rows, keys, 0});
      }
      Expect({k_width, v_width, group, rows, rows + 200, 37});
    }
  }
}

TEST(AttendBlocks, FromEveryDType) {
  if (test::Kernels().attention.blocks == nullptr) return;
  for (const DType dtype :
       {DType::kBF16, DType::kF16, DType::kF8E4M3, DType::kI8, DType::kF4E2M1}) {
    for (const int64_t width : {16, 20, 48, 128}) {
      if (dtype == DType::kF4E2M1 && width == 20) continue;
      for (const float scale : {1.0f, 0.3f}) {
        Expect({width, width, 3, 42, 300, 0, dtype, scale});
        Expect({width, 16, 4, 7, 129, 37, dtype, scale});
      }
    }
  }
}

}  // namespace
}  // namespace tenon
