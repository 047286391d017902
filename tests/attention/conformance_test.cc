// Every backend against the brute force, over dtypes, page sizes, head widths, features, phases and
// team sizes.
#include <map>

#include "attention/harness.h"

namespace tenon::test {
namespace {

// Tables that specs point to.
struct Tables {
  std::vector<float> sinks = {0.5f, -1, 2, 0, 1.5f, -0.25f, 0.75f, 1};
  std::vector<float> slopes = {0.5f, 0.25f, 0.125f, 0.0625f, 0.03f, 0.7f, 0.35f, 0.01f};
  std::vector<float> bias;
  const float* sinks_at = sinks.data();
  const float* slopes_at = slopes.data();
  const float* bias_at = nullptr;
  Tables() {
    std::mt19937 random(7);
    bias = RandomFloats(random, 32 * 8);
    bias_at = bias.data();
  }
};

struct Widths {
  int64_t heads, kv_heads, head_dim, v_head_dim;
};
constexpr Widths kWidths[] = {{6, 2, 16, 16}, {4, 4, 20, 20}, {8, 1, 64, 64}, {6, 3, 24, 16}};

AttentionSpec SpecOf(const Widths& w) {
  AttentionSpec spec;
  spec.heads = w.heads;
  spec.kv_heads = w.kv_heads;
  spec.head_dim = w.head_dim;
  spec.v_head_dim = w.v_head_dim;
  spec.scale = 1.0f / std::sqrt(static_cast<float>(w.head_dim));
  return spec;
}

struct Variant {
  const char* name;
  void (*apply)(AttentionSpec&, const Tables&);
};
const Variant kVariants[] = {
    {"plain", [](AttentionSpec&, const Tables&) {}},
    {"window", [](AttentionSpec& s, const Tables&) { s.window = 9; }},
    {"window of one", [](AttentionSpec& s, const Tables&) { s.window = 1; }},
    {"chunk", [](AttentionSpec& s, const Tables&) { s.chunk = 16; }},
    {"odd chunk", [](AttentionSpec& s, const Tables&) { s.chunk = 11; }},
    {"softcap", [](AttentionSpec& s, const Tables&) { s.softcap = 0.75f; }},
    {"sinks", [](AttentionSpec& s, const Tables& t) { s.sinks = &t.sinks_at; }},
    {"alibi", [](AttentionSpec& s, const Tables& t) { s.alibi_slopes = &t.slopes_at; }},
    {"relative bias",
     [](AttentionSpec& s, const Tables& t) {
       s.relative_bias = {&t.bias_at, 32, 64, false};
     }},
    {"relative bias both ways",
     [](AttentionSpec& s, const Tables& t) {
       s.relative_bias = {&t.bias_at, 16, 40, true};
     }},
    {"everything",
     [](AttentionSpec& s, const Tables& t) {
       s.window = 30;
       s.chunk = 64;
       s.softcap = 2;
       s.sinks = &t.sinks_at;
       s.alibi_slopes = &t.slopes_at;
       s.relative_bias = {&t.bias_at, 8, 20, false};
     }},
};

constexpr RequestPhase kP = RequestPhase::kPrefill;
constexpr RequestPhase kV = RequestPhase::kVerify;
constexpr RequestPhase kD = RequestPhase::kDecode;
// Prefill alone and after cached rows, verify, decode around page sizes.
const std::vector<TestRequest> kMixed = {{kP, 0, 1},  {kP, 0, 7},  {kP, 0, 40}, {kP, 19, 40},
                                         {kP, 33, 7}, {kP, 64, 1}, {kV, 50, 3}, {kD, 0, 1},
                                         {kD, 14, 1}, {kD, 15, 1}, {kD, 16, 1}, {kD, 99, 1}};
const std::vector<TestRequest> kPrefill(kMixed.begin(), kMixed.begin() + 6);
const std::vector<TestRequest> kDecode(kMixed.begin() + 6, kMixed.end());

struct Case {
  const char* backend;
  DType dtype;
  int32_t page_tokens;
  Compute compute = Compute::kFp32;
};

class Conformance : public testing::TestWithParam<Case> {
 protected:
  // With heads as wide as the dtype needs them.
  static AttentionSpec Spec(Widths widths) {
    if (GetParam().dtype == DType::kF4E2M1) {
      widths.head_dim = (widths.head_dim + 15) / 16 * 16;
      widths.v_head_dim = (widths.v_head_dim + 15) / 16 * 16;
    }
    AttentionSpec spec = SpecOf(widths);
    spec.kv_dtype = GetParam().dtype;
    spec.compute = GetParam().compute;
    spec.page_tokens = GetParam().page_tokens;
    return spec;
  }
};

TEST_P(Conformance, MixedRaggedSteps) {
  const auto backend = BackendNamed(GetParam().backend);
  const Tables tables;
  int threads = 0;
  for (const Widths& widths : kWidths) {
    for (const Variant& variant : kVariants) {
      AttentionSpec spec = Spec(widths);
      variant.apply(spec, tables);
      ASSERT_FALSE(ProblemOf(spec).has_value());
      if (!Serves(*backend, spec)) continue;
      for (const auto* requests : {&kMixed, &kPrefill, &kDecode}) {
        const auto data = MakeData(spec, *requests, 3);
        const auto expected = BruteForce(spec, spec.kv_dtype, *requests, data);
        threads = threads % 3 + 1;
        const auto out = RunLayer(*backend, spec, *requests, data,
                                  {.threads = threads, .seed = static_cast<unsigned>(threads)});
        EXPECT_LT(Distance(out, expected), ToleranceOf(*backend, spec))
            << variant.name << ", head_dim " << widths.head_dim << ", threads " << threads << ", "
            << requests->size() << " requests";
      }
    }
  }
}

TEST_P(Conformance, EncodersSeeTheirOwnRowsOnly) {
  // Nothing is cached: no rounding, whatever the dtype; two will do.
  if (GetParam().dtype != DType::kF32 && GetParam().dtype != DType::kI8) return;
  const auto backend = BackendNamed(GetParam().backend);
  const Tables tables;
  const std::vector<TestRequest> requests = {{kP, 0, 1}, {kP, 0, 40}, {kP, 0, 7}, {kP, 0, 150}};
  for (const Widths& widths : kWidths) {
    for (const Variant& variant : kVariants) {
      AttentionSpec spec = Spec(widths);
      spec.kind = AttentionKind::kEncoder;
      variant.apply(spec, tables);
      if (!Serves(*backend, spec)) continue;
      const auto data = MakeData(spec, requests, 5);
      const auto expected = BruteForce(spec, DType::kF32, requests, data);
      const auto out = RunLayer(*backend, spec, requests, data, {.threads = 2});
      EXPECT_LT(Distance(out, expected), ToleranceOf(*backend, spec)) << variant.name;
    }
  }
}

// The encoder's rows are appended by one tape, attended by later ones: prompt, then decode.
TEST_P(Conformance, CrossAttendsTheEncodersRows) {
  const auto backend = BackendNamed(GetParam().backend);
  const Tables tables;
  for (const bool with_sinks : {false, true}) {
    AttentionSpec spec = Spec(kWidths[3]);
    spec.kind = AttentionKind::kCross;
    if (with_sinks) spec.sinks = &tables.sinks_at;
    const std::vector<TestRequest> requests = {
        {kP, 0, 9, 40}, {kP, 0, 1, 16}, {kP, 0, 3, 1}, {kD, 5, 1, 33}, {kD, 5, 1, 300}};
    const auto data = MakeData(spec, requests, 11);
    const auto out = RunCross(*backend, spec, requests, data, {.threads = 3});
    EXPECT_LT(Distance(out, BruteForce(spec, spec.kv_dtype, requests, data)),
              ToleranceOf(*backend, spec));
  }
}

// More segments than the plan splits one by one, long and short sequences, more work than slots.
TEST_P(Conformance, LongAndManySequencesInDecode) {
  const auto backend = BackendNamed(GetParam().backend);
  AttentionSpec spec = Spec({2, 1, 8, 8});
  std::vector<TestRequest> requests = {{kP, 200, 70}, {kV, 700, 40}, {kV, 3000, 5}, {kD, 9000, 1}};
  for (int64_t i = 0; i < 30; ++i) requests.push_back({kD, 40 * i, 1});
  for (const bool windowed : {false, true}) {
    if (windowed) spec.window = 500;
    const auto data = MakeData(spec, requests, 17);
    const auto out = RunLayer(*backend, spec, requests, data, {.threads = 2});
    EXPECT_LT(Distance(out, BruteForce(spec, spec.kv_dtype, requests, data)),
              ToleranceOf(*backend, spec));
  }
}

TEST_P(Conformance, PaddingGivesZeros) {
  const auto backend = BackendNamed(GetParam().backend);
  AttentionSpec spec = Spec(kWidths[0]);
  for (const AttentionKind kind : {AttentionKind::kDecoder, AttentionKind::kEncoder}) {
    spec.kind = kind;
    for (const auto* requests : {&kMixed, &kPrefill, &kDecode}) {
      if (kind == AttentionKind::kEncoder && requests != &kPrefill) continue;
      std::vector<TestRequest> step = *requests;
      if (kind == AttentionKind::kEncoder) step = {{kP, 0, 5}, {kP, 0, 6}};
      const auto data = MakeData(spec, step, 3);
      auto expected = BruteForce(
          spec, kind == AttentionKind::kEncoder ? DType::kF32 : spec.kv_dtype, step, data);
      expected.resize(expected.size() + static_cast<size_t>(3 * spec.heads * spec.v_head_dim), 0.0);
      const auto out = RunLayer(*backend, spec, step, data, {.threads = 2, .padding = 3});
      EXPECT_LT(Distance(out, expected), ToleranceOf(*backend, spec));
    }
  }
}

// Rows shared with a layer of another backend's layout.
TEST_P(Conformance, EveryDeclaredLayout) {
  const BackendTable table = BuiltinBackends(Kernels());
  const auto backend = BackendNamed(GetParam().backend);
  for (const KvLayout layout : {KvLayout::kNhd, KvLayout::kHnd}) {
    AttentionSpec spec = Spec(kWidths[3]);
    spec.kv_layout = layout;
    bool declared = true;
    for (const KernelRow& row : table.rows)
      declared &= row.backend != backend->name() || row.layouts.Accepts(layout);
    if (!declared) continue;
    const auto data = MakeData(spec, kMixed, 3);
    EXPECT_LT(Distance(RunLayer(*backend, spec, kMixed, data),
                       BruteForce(spec, spec.kv_dtype, kMixed, data)),
              ToleranceOf(*backend, spec));
  }
}

// Numbers are stored divided by the layer's scales.
TEST_P(Conformance, ScalesOfTheWholeLayer) {
  if (GetParam().dtype != DType::kF8E4M3 && GetParam().dtype != DType::kF4E2M1) return;
  const auto backend = BackendNamed(GetParam().backend);
  for (const auto& [k_scale, v_scale] : {std::pair{0.37f, 3.0f}, {0.0009f, 1.0f}}) {
    AttentionSpec spec = Spec(kWidths[0]);
    spec.k_scale = k_scale;  // the smaller one: keys leave the range of the codes
    spec.v_scale = v_scale;
    const auto data = MakeData(spec, kMixed, 3);
    EXPECT_LT(Distance(RunLayer(*backend, spec, kMixed, data, {.threads = 2}),
                       BruteForce(spec, spec.kv_dtype, kMixed, data)),
              ToleranceOf(*backend, spec));
  }
}

// What a dtype costs: the relative error of the output, against rows as they were, on normal data.
// Bounds are about twice what was measured.
TEST_P(Conformance, ErrorOfTheDType) {
  const std::map<DType, double> bounds = {{DType::kF32, 1e-5},  {DType::kBF16, 6e-3},
                                          {DType::kF16, 8e-4},  {DType::kF8E4M3, 6e-2},
                                          {DType::kI8, 1.5e-2}, {DType::kF4E2M1, 0.25}};
  const auto backend = BackendNamed(GetParam().backend);
  AttentionSpec spec = Spec({8, 2, 128, 128});
  const std::vector<TestRequest> requests = {{kP, 100, 60}, {kD, 250, 1}};
  std::mt19937 random(23);
  std::normal_distribution<float> normal;
  auto data = MakeData(spec, requests, 1);
  for (SequenceData& sequence : data) {
    for (auto* rows : {&sequence.q, &sequence.k, &sequence.v}) {
      for (float& x : *rows) x = normal(random);
    }
  }
  const auto exact = BruteForce(spec, DType::kF32, requests, data);
  const auto out = RunLayer(*backend, spec, requests, data);
  double error = 0;
  double norm = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    const double difference = static_cast<double>(out[i]) - exact[i];
    error += difference * difference;
    norm += exact[i] * exact[i];
  }
  const double relative = std::sqrt(error / norm);
  RecordProperty("relative_error", std::to_string(relative));
  const double products = spec.compute == Compute::kFp32 ? 0 : 6e-3;
  EXPECT_LT(relative, bounds.at(spec.kv_dtype) + products);
  const bool is_exact = spec.kv_dtype == DType::kF32;
  EXPECT_GT(relative, is_exact ? 0 : bounds.at(spec.kv_dtype) / 8) << "the dtype is not used";
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const char* backend : {"VANILLA", "NATIVE", "FLASHINFER"}) {
    for (const KvDType& kv : KvDTypes()) {
      for (const int32_t page_tokens : {16, 32}) cases.push_back({backend, kv.dtype, page_tokens});
    }
  }
  int32_t page_tokens = 16;
  for (const KvDType& kv : KvDTypes()) {
    cases.push_back({"NATIVE", kv.dtype, page_tokens, Compute::kBf16});
    page_tokens = 48 - page_tokens;
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(All, Conformance, testing::ValuesIn(Cases()),
                         [](const testing::TestParamInfo<Case>& test) {
                           return std::string(test.param.backend) + "_" +
                                  std::string(KvNameOf(test.param.dtype)) + "_" +
                                  std::to_string(test.param.page_tokens) +
                                  (test.param.compute == Compute::kFp32 ? "" : "_bf16_products");
                         });

}  // namespace
}  // namespace tenon::test
