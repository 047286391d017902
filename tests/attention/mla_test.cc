// Latent attention: the cached latents directly (RunLatent), keys and values expanded from them
// (RunExpanded, in chunks that Merge joins), and the brute force over expanded keys are the same
// mathematics.
#include "attention/mla_case.h"

namespace tenon::test {
namespace {

constexpr RequestPhase kP = RequestPhase::kPrefill;
constexpr RequestPhase kV = RequestPhase::kVerify;
constexpr RequestPhase kD = RequestPhase::kDecode;

AttentionSpec SpecOf(DType dtype, int32_t page_tokens) {
  AttentionSpec spec;
  spec.mla = MlaGeometry{.q_lora_rank = 0,
                         .kv_lora_rank = 20,
                         .qk_nope_head_dim = 12,
                         .qk_rope_head_dim = 6,
                         .v_head_dim = 10};
  spec.heads = spec.kv_heads = 5;
  spec.head_dim = 18;
  spec.v_head_dim = 10;
  spec.scale = 0.2f;
  spec.kv_dtype = dtype;
  spec.page_tokens = page_tokens;
  return spec;
}

struct Case {
  const char* backend;
  DType dtype;
  int32_t page_tokens;
};
class Mla : public testing::TestWithParam<Case> {
 protected:
  AttentionSpec Spec() const { return SpecOf(GetParam().dtype, GetParam().page_tokens); }
  std::shared_ptr<const AttentionBackend> backend() const {
    return BackendNamed(GetParam().backend);
  }
};

std::vector<float> kSinks = {0.3f, -1, 1, 0, 2};
const float* kSinksAt = kSinks.data();

// Specs that ask for more than plain causal attention.
std::vector<AttentionSpec> Variants(const AttentionSpec& plain) {
  std::vector<AttentionSpec> specs(5, plain);
  specs[1].window = 21;
  specs[2].chunk = 13;
  specs[3].softcap = 0.7f;
  specs[4].sinks = &kSinksAt;
  return specs;
}

TEST_P(Mla, LatentsGiveWhatExpandedKeysGive) {
  const std::vector<TestRequest> decode = {{kV, 30, 3}, {kD, 0, 1},  {kD, 14, 1},
                                           {kD, 15, 1}, {kD, 99, 1}, {kD, 700, 1}};
  std::vector<TestRequest> mixed = {{kP, 0, 40}, {kP, 31, 7}, {kP, 0, 1}};
  mixed.insert(mixed.end(), decode.begin(), decode.end());
  for (const AttentionSpec& spec : Variants(Spec())) {
    if (!Serves(*backend(), spec)) continue;
    for (const auto& requests : {decode, mixed}) {
      MlaCase mla(spec, requests, 3);
      const auto expected = mla.Expected(true);
      for (const int threads : {1, 3}) {
        EXPECT_LT(Distance(mla.RunLatent(*backend(), threads), expected), 1e-5);
      }
    }
  }
}

TEST_P(Mla, ContextInChunksGivesWhatTheWholeContextGives) {
  for (const AttentionSpec& spec : Variants(Spec())) {
    if (!Serves(*backend(), spec)) continue;
    for (const TestRequest& request : {TestRequest{kP, 0, 40}, TestRequest{kP, 1, 7},
                                       TestRequest{kP, 70, 9}, TestRequest{kP, 64, 33}}) {
      MlaCase mla(spec, {request}, 5);
      const auto expected = mla.Expected(false);
      for (const int64_t chunk_rows : {16, 23, 64, 200}) {
        EXPECT_LT(Distance(mla.RunExpanded(*backend(), chunk_rows, 2), expected), 1e-5)
            << "context " << request.before << ", chunk " << chunk_rows;
      }
    }
  }
}

TEST_P(Mla, NoRotaryPart) {
  AttentionSpec spec = Spec();
  spec.mla->qk_rope_head_dim = 0;
  spec.head_dim = spec.mla->qk_nope_head_dim;
  MlaCase prefill(spec, {{kP, 20, 9}}, 6);
  EXPECT_LT(Distance(prefill.RunExpanded(*backend(), 16, 2), prefill.Expected(false)), 1e-5);
  EXPECT_LT(Distance(prefill.RunLatent(*backend(), 2), prefill.Expected(true)), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(
    All, Mla,
    testing::Values(Case{"VANILLA", DType::kF32, 16}, Case{"VANILLA", DType::kBF16, 32},
                    Case{"VANILLA", DType::kF16, 16}, Case{"VANILLA", DType::kF8E4M3, 16},
                    Case{"VANILLA", DType::kI8, 32}, Case{"NATIVE", DType::kF32, 16},
                    Case{"NATIVE", DType::kF32, 32}, Case{"NATIVE", DType::kBF16, 16},
                    Case{"NATIVE", DType::kBF16, 32}, Case{"NATIVE", DType::kF16, 32},
                    Case{"NATIVE", DType::kF8E4M3, 32}, Case{"NATIVE", DType::kI8, 16},
                    Case{"FLASHINFER", DType::kF32, 16}, Case{"FLASHINFER", DType::kBF16, 32},
                    Case{"FLASHINFER", DType::kF8E4M3, 16}, Case{"FLASHINFER", DType::kI8, 32}),
    [](const testing::TestParamInfo<Case>& test) {
      return std::string(test.param.backend) + "_" + std::string(KvNameOf(test.param.dtype)) + "_" +
             std::to_string(test.param.page_tokens);
    });

}  // namespace
}  // namespace tenon::test
