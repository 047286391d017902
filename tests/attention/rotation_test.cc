// Queries and keys that a backend rotates on their way give what rotated ones give: in prefill, in
// a decode step of one row and of several, after a context that is cached rotated.
#include "attention/harness.h"

namespace tenon::test {
namespace {

constexpr RequestPhase kP = RequestPhase::kPrefill;
constexpr RequestPhase kD = RequestPhase::kDecode;

// Rows of `heads` heads: the first columns of each by its row's angles, in double.
void Rotate(const RunOptions& by, int64_t rows, int64_t heads, int64_t head_dim, float* x) {
  const int64_t width = static_cast<int64_t>(by.angles.size()) / rows;
  const int64_t half = width / 2;
  for (int64_t row = 0; row < rows; ++row) {
    const float* cosines = by.angles.data() + row * width;
    for (int64_t head = 0; head < heads; ++head) {
      float* at = x + (row * heads + head) * head_dim;
      for (int64_t j = 0; j < half; ++j) {
        const bool pairs = by.pairing == RopePairing::kInterleaved;
        float& first = at[pairs ? 2 * j : j];
        float& second = at[pairs ? 2 * j + 1 : j + half];
        const double a = first;
        const double b = second;
        const double c = cosines[j];
        const double s = cosines[half + j];
        first = static_cast<float>(a * c - b * s);
        second = static_cast<float>(b * c + a * s);
      }
    }
  }
}

class Rotation : public testing::TestWithParam<std::tuple<const char*, DType, RopePairing>> {};

TEST_P(Rotation, OnTheWayIsRotationBefore) {
  const auto& [name, dtype, pairing] = GetParam();
  const BackendTable table = BuiltinBackends(Kernels());
  const AttentionBackend& backend = *table.Find(name);
  AttentionSpec spec;
  spec.heads = 6;
  spec.kv_heads = 2;
  spec.head_dim = spec.v_head_dim = 24;
  spec.scale = 0.2f;
  spec.kv_dtype = dtype;
  spec.page_tokens = 16;
  const std::vector<std::vector<TestRequest>> steps = {
      {{kD, 0, 1}},
      {{kD, 40, 1}},
      {{kD, 300, 1}},
      {{kP, 0, 1}},
      {{kP, 5, 37}},
      {{kD, 20, 1}, {kD, 3, 1}},
      {{kP, 0, 9}, {kD, 150, 1}},
  };
  for (size_t i = 0; i < steps.size(); ++i) {
    for (const int64_t rotary_dim : {24, 8}) {
      for (const int threads : {1, 3}) {
        SCOPED_TRACE(testing::Message() << "step " << i << ", " << rotary_dim << " columns, "
                                        << threads << " threads");
        std::vector<SequenceData> data = MakeData(spec, steps[i], 5);
        int64_t rows = 0;
        for (const TestRequest& r : steps[i]) rows += r.rows;
        std::mt19937 random(9);
        RunOptions rotating{.threads = threads};
        rotating.angles = RandomFloats(random, static_cast<size_t>(rows * rotary_dim));
        rotating.pairing = pairing;
        rotating.padding = rows > 1 ? 2 : 0;
        const auto got = RunLayer(backend, spec, steps[i], data, rotating);

        RunOptions plain{.threads = threads, .padding = rotating.padding};
        size_t row = 0;
        for (size_t r = 0; r < steps[i].size(); ++r) {
          const auto width = static_cast<size_t>(rotary_dim);
          const TestRequest& request = steps[i][r];
          RunOptions own = rotating;
          const auto begin = rotating.angles.begin() + static_cast<std::ptrdiff_t>(row * width);
          own.angles.assign(begin, begin + static_cast<std::ptrdiff_t>(
                                               static_cast<size_t>(request.rows) * width));
          Rotate(own, request.rows, spec.heads, spec.head_dim,
                 data[r].q.data() + request.before * spec.heads * spec.head_dim);
          Rotate(own, request.rows, spec.kv_heads, spec.head_dim,
                 data[r].k.data() + request.before * spec.kv_heads * spec.head_dim);
          row += static_cast<size_t>(request.rows);
        }
        const auto expected = RunLayer(backend, spec, steps[i], data, plain);
        ASSERT_EQ(got.size(), expected.size());
        // A last bit may be rounded into another bf16 or code.
        const float tolerance = dtype == DType::kF32 ? 1e-5f : dtype == DType::kI8 ? 1e-2f : 5e-3f;
        for (size_t at = 0; at < got.size(); ++at) {
          ASSERT_NEAR(got[at], expected[at], tolerance) << at;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Rotation,
                         testing::Combine(testing::Values("NATIVE", "FLASHINFER", "VANILLA"),
                                          testing::Values(DType::kF32, DType::kBF16, DType::kI8),
                                          testing::Values(RopePairing::kHalf,
                                                          RopePairing::kInterleaved)));

}  // namespace
}  // namespace tenon::test
