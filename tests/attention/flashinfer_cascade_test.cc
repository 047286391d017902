// Sequences forked from one another, attended by FLASHINFER with and without sharing of what they
// have in common: bit by bit the same, and what the brute force says of each by itself.
#include <set>

#include "attention/harness.h"
#include "tenon/attention/backends/builtin.h"
#include "tenon/attention/backends/flashinfer_plan.h"

namespace tenon::test {
namespace {

constexpr RequestPhase kP = RequestPhase::kPrefill;
constexpr RequestPhase kV = RequestPhase::kVerify;
constexpr RequestPhase kD = RequestPhase::kDecode;

AttentionSpec PlainSpec() {
  AttentionSpec spec;
  spec.heads = 6;
  spec.kv_heads = 2;
  spec.head_dim = spec.v_head_dim = 20;
  spec.scale = 0.2f;
  return spec;
}

TestRequest Forked(RequestPhase phase, int64_t before, int64_t rows, int parent, int64_t shared) {
  TestRequest r{phase, before, rows};
  r.parent = parent;
  r.shared = shared;
  return r;
}

// Two families that take turns, a fork of a fork, prompts and verified rows, one that is alone.
std::vector<TestRequest> Family() {
  return {{kP, 700, 5},
          {kP, 600, 3},
          Forked(kP, 520, 9, 0, 512),
          Forked(kV, 470, 4, 1, 460),
          {kD, 500, 1},
          Forked(kD, 800, 1, 0, 640),
          Forked(kD, 700, 1, 5, 700),
          Forked(kD, 513, 1, 1, 512),
          Forked(kD, 256, 1, 0, 256)};
}

struct Tables {
  std::vector<float> sinks = {0.5f, -1, 2, 0, 1.5f, -0.25f};
  std::vector<float> slopes = {0.5f, 0.25f, 0.125f, 0.0625f, 0.03f, 0.01f};
  std::vector<float> bias = std::vector<float>(32 * 6);
  const float* sinks_at = sinks.data();
  const float* slopes_at = slopes.data();
  const float* bias_at = bias.data();
  Tables() {
    for (size_t i = 0; i < bias.size(); ++i) bias[i] = 0.1f * static_cast<float>(i % 13);
  }
};

TEST(Cascade, SharedPrefixesChangeNoBit) {
  const Tables tables;
  std::vector<AttentionSpec> specs(6, PlainSpec());
  specs[1].sinks = &tables.sinks_at;
  specs[2].softcap = 0.75f;
  specs[3].alibi_slopes = &tables.slopes_at;
  specs[4].relative_bias = {&tables.bias_at, 32, 300, false};
  specs[5].kv_dtype = DType::kBF16;
  const auto shared = backends::MakeFlashInfer(Kernels());
  const auto apart = backends::MakeFlashInfer(Kernels(), {.cascade = false});
  const auto requests = Family();
  for (AttentionSpec& spec : specs) {
    for (const KvLayout layout : {KvLayout::kNhd, KvLayout::kHnd}) {
      spec.kv_layout = layout;
      const auto data = MakeData(spec, requests, 8);
      const auto expected = BruteForce(spec, spec.kv_dtype, requests, data);
      const auto alone = RunLayer(*apart, spec, requests, data);
      EXPECT_LT(Distance(alone, expected), ToleranceOf(*apart, spec));
      for (const int threads : {1, 2, 3}) {
        EXPECT_TRUE(RunLayer(*shared, spec, requests, data, {.threads = threads}) == alone);
      }
    }
  }
}

// Masks are a request's own: it shares nothing.
TEST(Cascade, MaskedRequestsStayAlone) {
  AttentionSpec spec = PlainSpec();
  spec.custom_mask = true;
  auto requests = Family();
  std::vector<TestRequest> masked = {requests[0], requests[2]};
  masked[1].parent = 0;
  AddMasks(spec.kind, 3, masked);
  requests[0].mask = masked[0].mask;
  requests[2].mask = masked[1].mask;
  const auto data = MakeData(spec, requests, 8);
  const auto backend = backends::MakeFlashInfer(Kernels());
  EXPECT_LT(Distance(RunLayer(*backend, spec, requests, data, {.threads = 2}),
                     BruteForce(spec, spec.kv_dtype, requests, data)),
            1e-5);
}

// The pages that forks share are found in the plan, so that the tests above test something.
TEST(Cascade, ForksAreFound) {
  const AttentionSpec spec = PlainSpec();
  const auto backend = backends::MakeFlashInfer(Kernels());
  const auto requests = Family();
  Sequences sequences(CacheSpecOf(spec, *backend), static_cast<int64_t>(requests.size()), 6000, 1);
  sequences.Admit(requests);
  sequences.SetRequests(requests);
  const auto* plan = static_cast<const backends::FlashInferPlan*>(sequences.Call(*backend).plan);
  sequences.Prepare(*backend);
  std::set<std::vector<int32_t>> groups;
  for (const auto& group : plan->shared().groups()) {
    const auto members = plan->shared().members(group);
    groups.insert({members.begin(), members.end()});
    EXPECT_GE(group.keys, 256);
  }
  // 0, 2, 5, 6, 8 come from the first; 1, 3, 7 from the second.
  std::set<int32_t> shares;
  for (const auto& group : groups) shares.insert(group.begin(), group.end());
  EXPECT_TRUE(groups.contains({1, 3, 7}));
  EXPECT_FALSE(shares.contains(4));
  EXPECT_GE(shares.size(), 7u);
}

}  // namespace
}  // namespace tenon::test
