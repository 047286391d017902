// Masks that requests bring: bits in the documented order, in place of causality, together with
// everything else a layer has.
#include "attention/harness.h"

namespace tenon::test {
namespace {

constexpr RequestPhase kP = RequestPhase::kPrefill;
constexpr RequestPhase kV = RequestPhase::kVerify;
constexpr RequestPhase kD = RequestPhase::kDecode;

AttentionSpec MaskedSpec() {
  AttentionSpec spec;
  spec.heads = 4;
  spec.kv_heads = 2;
  spec.head_dim = spec.v_head_dim = 16;
  spec.scale = 0.25f;
  spec.custom_mask = true;
  return spec;
}

class CustomMask : public testing::TestWithParam<const char*> {
 protected:
  std::shared_ptr<const AttentionBackend> backend() const { return BackendNamed(GetParam()); }
};

// Queries of zero weigh all seen keys alike: the result is the mean of their values.
TEST_P(CustomMask, BitsAreRowsOfKeysLowestFirst) {
  AttentionSpec spec = MaskedSpec();
  spec.heads = spec.kv_heads = 1;
  spec.head_dim = spec.v_head_dim = 1;
  TestRequest request{kP, 2, 3};  // 3 rows of 5 keys
  // Row 0: keys 0, 4; row 1: key 2; row 2: keys 1, 2, 3. Bits 0, 4, 7, 11, 12, 13.
  request.mask = {0x91, 0x38};
  SequenceData data;
  data.q = {0, 0, 0, 0, 0};
  data.k = {1, 2, 3, 4, 5};
  data.v = {10, 20, 30, 40, 50};
  const auto out = RunLayer(*backend(), spec, {request}, {data});
  EXPECT_EQ(out, (std::vector<float>{30, 30, 30}));
  request.mask = {0x01, 0x20};  // row 0: key 0; row 1: none; row 2: key 3
  EXPECT_EQ(RunLayer(*backend(), spec, {request}, {data}), (std::vector<float>{10, 0, 40}));
}

TEST_P(CustomMask, AnyMaskInMixedSteps) {
  const std::vector<float> sinks = {0.5f, -1, 2, 0};
  const float* sinks_at = sinks.data();
  std::vector<AttentionSpec> specs(4, MaskedSpec());
  specs[1].window = 20;
  specs[2].sinks = &sinks_at;
  specs[3].softcap = 0.75f;
  for (AttentionSpec& spec : specs) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      spec.kv_dtype = dtype;
      std::vector<TestRequest> requests = {{kP, 0, 1},  {kP, 0, 40}, {kP, 33, 7}, {kP, 300, 40},
                                           {kV, 50, 3}, {kD, 99, 1}, {kD, 700, 1}};
      AddMasks(spec.kind, 9, requests);
      requests[2].mask.clear();  // causal
      requests[5].mask.clear();
      const auto data = MakeData(spec, requests, 3);
      const auto expected = BruteForce(spec, dtype, requests, data);
      for (const int threads : {1, 2, 3}) {
        EXPECT_LT(
            Distance(RunLayer(*backend(), spec, requests, data, {.threads = threads}), expected),
            ToleranceOf(*backend(), spec));
      }
    }
  }
}

TEST_P(CustomMask, EncodersAndCross) {
  AttentionSpec spec = MaskedSpec();
  spec.kind = AttentionKind::kEncoder;
  std::vector<TestRequest> requests = {{kP, 0, 40}, {kP, 0, 7}, {kP, 0, 150}};
  AddMasks(spec.kind, 9, requests);
  auto data = MakeData(spec, requests, 3);
  EXPECT_LT(Distance(RunLayer(*backend(), spec, requests, data, {.threads = 2}),
                     BruteForce(spec, spec.kv_dtype, requests, data)),
            ToleranceOf(*backend(), spec));
  spec.kind = AttentionKind::kCross;
  requests = {{kP, 0, 9, 40}, {kP, 0, 3, 1}, {kD, 5, 1, 300}};
  AddMasks(spec.kind, 9, requests);
  data = MakeData(spec, requests, 3);
  EXPECT_LT(Distance(RunCross(*backend(), spec, requests, data, {.threads = 2}),
                     BruteForce(spec, spec.kv_dtype, requests, data)),
            ToleranceOf(*backend(), spec));
}

// A mask that says what causality says changes no bit.
TEST_P(CustomMask, TheCausalMask) {
  const AttentionSpec spec = MaskedSpec();
  std::vector<TestRequest> requests = {{kP, 200, 70}, {kD, 500, 1}};
  const auto data = MakeData(spec, requests, 3);
  const auto causal = RunLayer(*backend(), spec, requests, data);
  for (TestRequest& r : requests) {
    const int64_t keys = r.before + r.rows;
    r.mask.assign(static_cast<size_t>((r.rows * keys + 7) / 8), 0);
    for (int64_t row = 0; row < r.rows; ++row) {
      for (int64_t key = 0; key <= r.before + row; ++key) {
        const int64_t bit = row * keys + key;
        r.mask[static_cast<size_t>(bit / 8)] |= static_cast<uint8_t>(1 << bit % 8);
      }
    }
  }
  EXPECT_EQ(RunLayer(*backend(), spec, requests, data), causal);
}

INSTANTIATE_TEST_SUITE_P(All, CustomMask, testing::Values("VANILLA", "FLASHINFER"));

TEST(CustomMask, NativeRefusesIt) {
  EXPECT_FALSE(Serves(*BackendNamed("NATIVE"), MaskedSpec()));
  MachineProfile machine;
  const BackendTable table = BuiltinBackends(Kernels());
  const Choice choice = SelectBackend({"auto", {}}, MaskedSpec(), machine, table);
  ASSERT_NE(choice.backend, nullptr);
  EXPECT_EQ(choice.backend->name(), "FLASHINFER");
}

}  // namespace
}  // namespace tenon::test
