// Every backend against the brute force, over dtypes, page sizes, head widths, features, phases and
// team sizes.
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

class Conformance : public testing::TestWithParam<Case> {};

TEST_P(Conformance, MixedRaggedSteps) {
  const auto backend = BackendNamed(GetParam().backend);
  const Tables tables;
  int threads = 0;
  for (const Widths& widths : kWidths) {
    for (const Variant& variant : kVariants) {
      AttentionSpec spec = SpecOf(widths);
      spec.kv_dtype = GetParam().dtype;
      spec.compute = GetParam().compute;
      spec.page_tokens = GetParam().page_tokens;
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
  const auto backend = BackendNamed(GetParam().backend);
  const Tables tables;
  const std::vector<TestRequest> requests = {{kP, 0, 1}, {kP, 0, 40}, {kP, 0, 7}, {kP, 0, 150}};
  for (const Widths& widths : kWidths) {
    for (const Variant& variant : kVariants) {
      AttentionSpec spec = SpecOf(widths);
      spec.kind = AttentionKind::kEncoder;
      spec.kv_dtype = GetParam().dtype;
      spec.compute = GetParam().compute;  // nothing is cached: no rounding
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
    AttentionSpec spec = SpecOf(kWidths[3]);
    spec.kind = AttentionKind::kCross;
    spec.kv_dtype = GetParam().dtype;
    spec.compute = GetParam().compute;
    spec.page_tokens = GetParam().page_tokens;
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
  AttentionSpec spec = SpecOf({2, 1, 8, 8});
  spec.kv_dtype = GetParam().dtype;
  spec.compute = GetParam().compute;
  spec.page_tokens = GetParam().page_tokens;
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
  AttentionSpec spec = SpecOf(kWidths[0]);
  spec.kv_dtype = GetParam().dtype;
  spec.compute = GetParam().compute;
  spec.page_tokens = GetParam().page_tokens;
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
    AttentionSpec spec = SpecOf(kWidths[3]);
    spec.kv_dtype = GetParam().dtype;
    spec.compute = GetParam().compute;
    spec.page_tokens = GetParam().page_tokens;
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

INSTANTIATE_TEST_SUITE_P(
    All, Conformance,
    testing::Values(Case{"VANILLA", DType::kF32, 16}, Case{"VANILLA", DType::kF32, 32},
                    Case{"VANILLA", DType::kBF16, 16}, Case{"VANILLA", DType::kBF16, 32},
                    Case{"NATIVE", DType::kF32, 16}, Case{"NATIVE", DType::kF32, 32},
                    Case{"NATIVE", DType::kBF16, 16}, Case{"NATIVE", DType::kBF16, 32},
                    Case{"NATIVE", DType::kF32, 32, Compute::kBf16},
                    Case{"NATIVE", DType::kBF16, 16, Compute::kBf16},
                    Case{"FLASHINFER", DType::kF32, 16}, Case{"FLASHINFER", DType::kF32, 32},
                    Case{"FLASHINFER", DType::kBF16, 16}, Case{"FLASHINFER", DType::kBF16, 32}),
    [](const testing::TestParamInfo<Case>& test) {
      return std::string(test.param.backend) + "_" + std::string(NameOf(test.param.dtype)) + "_" +
             std::to_string(test.param.page_tokens) +
             (test.param.compute == Compute::kFp32 ? "" : "_bf16_products");
    });

}  // namespace
}  // namespace tenon::test
