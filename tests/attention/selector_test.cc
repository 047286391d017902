#include "tenon/attention/selector.h"

#include <gmock/gmock.h>

#include "attention/harness.h"

namespace tenon::test {
namespace {

using testing::HasSubstr;

const Origin kOption = {Origin::Kind::kUser, "--attn-backend"};

AttentionSpec Spec() {
  AttentionSpec spec;
  spec.heads = 4;
  spec.kv_heads = 2;
  spec.head_dim = spec.v_head_dim = 64;
  spec.scale = 0.125f;
  return spec;
}

BackendTable Builtin() { return BuiltinBackends(Kernels()); }

// A backend that only has a name, as a plugin's would have rows of its own.
class NamedBackend final : public AttentionBackend {
 public:
  std::string_view name() const override { return "SPECIAL"; }
  KvLayout layout() const override { return KvLayout::kNhd; }
  std::unique_ptr<AttentionLayer> CreateLayer(const AttentionSpec&) const override { return {}; }
  std::unique_ptr<MlaLayer> CreateMlaLayer(const AttentionSpec&) const override { return {}; }
  std::unique_ptr<StepPlan> CreatePlan(int, const CacheSpec&) const override { return {}; }
  void Prepare(const StepLayout&, StepPlan&) const override {}
};

KernelRow SpecialRow(AttentionPhase phase) {
  return {.backend = "SPECIAL",
          .kernel = "fast",
          .phase = phase,
          .isa = Isa::kAvx512,
          .features = FeatureSet{0} | Feature::kWindow,
          .kv_dtypes = Of(DType::kI8, DType::kBF16),
          .page_tokens = Of<int32_t>(32, 64),
          .layouts = Of(KvLayout::kNhd),
          .head_dims = Of<int64_t>(64, 128),
          .computes = Any<Compute>()};
}

TEST(Selector, AutoTakesTheFirstThatServes) {
  const BackendTable table = Builtin();
  const Choice choice = SelectBackend({"auto", {}}, Spec(), {}, table);
  ASSERT_NE(choice.backend, nullptr);
  EXPECT_EQ(choice.backend->name(), "NATIVE");
  EXPECT_EQ(choice.prefill->kernel, "generic_prefill");
  EXPECT_EQ(choice.decode->kernel, "generic_decode");
  EXPECT_EQ(choice.Why(),
            "prefill generic_prefill, decode generic_decode; first in order that supports the "
            "layer; passed over: NATIVE/bf16_prefill (isa = baseline), NATIVE/bf16_prefill "
            "(compute = fp32)");
}

TEST(Selector, Bf16PrefillWhereAllowed) {
  const BackendTable table = Builtin();
  MachineProfile machine;
  machine.isa = Isa::kAvx512Bf16Vnni;
  AttentionSpec spec = Spec();
  spec.compute = Compute::kBf16;
  const Choice choice = SelectBackend({"auto", {}}, spec, machine, table);
  EXPECT_EQ(choice.prefill->kernel, "bf16_prefill");
  EXPECT_EQ(choice.decode->kernel, "generic_decode");
  EXPECT_EQ(choice.Why(),
            "prefill bf16_prefill, decode generic_decode; first in order that supports the layer");
  EXPECT_TRUE(choice.refusals.empty());
  spec.compute = Compute::kFp32;
  EXPECT_EQ(SelectBackend({"auto", {}}, spec, machine, table).prefill->kernel, "generic_prefill");
  // The record's name is the row's.
  spec.compute = Compute::kBf16;
  const auto backend = BackendNamed("NATIVE");
  const std::vector<TestRequest> requests = {{RequestPhase::kPrefill, 0, 3}};
  const auto names = KernelsOf(*backend, spec, requests);
  const bool has = test::TestIsa() >= Isa::kAvx512Bf16Vnni;
  EXPECT_THAT(names, testing::Contains(has ? "NATIVE/bf16_prefill" : "NATIVE/generic_prefill"));
}

TEST(Selector, NamesInAnyCaseAndAliases) {
  const BackendTable table = Builtin();
  for (const auto& [wanted, name] :
       std::vector<std::pair<std::string, std::string>>{{"VANILLA", "VANILLA"},
                                                        {"vanilla", "VANILLA"},
                                                        {"Native", "NATIVE"},
                                                        {"trtllm", "NATIVE"},
                                                        {"TRTLLM", "NATIVE"},
                                                        {"AUTO", "NATIVE"}}) {
    const Choice choice = SelectBackend({wanted, kOption}, Spec(), {}, table);
    ASSERT_NE(choice.backend, nullptr) << wanted;
    EXPECT_EQ(choice.backend->name(), name);
  }
}

TEST(Selector, UnknownAndEmptyNamesListTheValidOnes) {
  const BackendTable table = Builtin();
  const auto text = [&](const char* wanted) {
    const Choice choice = SelectBackend({wanted, kOption}, Spec(), {}, table);
    EXPECT_EQ(choice.backend, nullptr);
    EXPECT_EQ(choice.RefusalTexts().size(), 1u);
    return choice.RefusalTexts()[0];
  };
  EXPECT_EQ(text("vanila"),
            "refused: selector: attention backend = 'vanila', supports {auto, NATIVE, FLASHINFER, "
            "VANILLA}; set by --attn-backend; fix: --attn-backend VANILLA");
  EXPECT_EQ(text(""),
            "refused: selector: attention backend = '', supports {auto, NATIVE, FLASHINFER, "
            "VANILLA}; set by "
            "--attn-backend; fix: --attn-backend auto");
}

TEST(Selector, EveryReasonOfEveryRowIsGiven) {
  BackendTable table = Builtin();
  table.rows.insert(table.rows.begin(),
                    {SpecialRow(AttentionPhase::kPrefill), SpecialRow(AttentionPhase::kDecode)});
  table.backends.insert(table.backends.begin(), std::make_shared<NamedBackend>());
  AttentionSpec spec = Spec();
  spec.chunk = 8192;
  spec.head_dim = spec.v_head_dim = 80;
  MachineProfile machine;
  machine.isa = Isa::kAvx2;
  const SpecOrigins origins = {.model = {Origin::Kind::kCheckpoint, "config.json"},
                               .kv_dtype = {Origin::Kind::kUser, "--kv-dtype"},
                               .page_tokens = {Origin::Kind::kEngineDefault, {}},
                               .machine = {Origin::Kind::kUser, "--isa"}};
  const Choice refused = SelectBackend({"special", kOption}, spec, machine, table, origins);
  EXPECT_EQ(refused.backend, nullptr);
  EXPECT_THAT(
      refused.RefusalTexts(),
      testing::IsSupersetOf(
          {"refused: SPECIAL/fast: isa = avx2, supports avx512 and newer; set by --isa; fix: "
           "--attn-backend NATIVE or VANILLA",
           "refused: SPECIAL/fast: kv_dtype = f32, supports {int8, bf16}; set by --kv-dtype; fix: "
           "--attn-backend NATIVE or VANILLA",
           "refused: SPECIAL/fast: page_tokens = 16, supports {32, 64}; set by engine default; "
           "fix: "
           "--attn-backend NATIVE or VANILLA",
           "refused: SPECIAL/fast: head_dim = 80, supports {64, 128}; set by config.json; fix: "
           "--attn-backend NATIVE or VANILLA",
           "refused: SPECIAL/fast: chunk = 8192, supports none; set by config.json; fix: "
           "--attn-backend NATIVE or VANILLA"}));
  EXPECT_EQ(refused.refusals.size(), 10u);  // both phases
  const Choice chosen = SelectBackend({"auto", {}}, spec, machine, table, origins);
  EXPECT_EQ(chosen.backend->name(), "NATIVE");
  EXPECT_THAT(chosen.Why(), HasSubstr("passed over: SPECIAL/fast (isa = avx2), SPECIAL/fast "
                                      "(kv_dtype = f32)"));
  spec = Spec();
  spec.window = 100;
  spec.kv_dtype = DType::kI8;
  spec.page_tokens = 32;
  machine.isa = Isa::kAvx512;
  EXPECT_EQ(SelectBackend({"auto", {}}, spec, machine, table).backend->name(), "SPECIAL");
}

TEST(Selector, WhatNobodySupportsSaysHowToChangeIt) {
  const BackendTable table = Builtin();
  AttentionSpec spec = Spec();
  spec.kv_dtype = DType::kF4E2M1;
  spec.head_dim = spec.v_head_dim = 20;
  const SpecOrigins origins = {.kv_dtype = {Origin::Kind::kUser, "--kv-dtype"}};
  const Choice choice = SelectBackend({"auto", {}}, spec, {}, table, origins);
  EXPECT_EQ(choice.backend, nullptr);
  // Three backends, two phases; the bf16 row three times: isa and compute too.
  EXPECT_EQ(choice.refusals.size(), 9u);
  EXPECT_EQ(choice.RefusalTexts()[3],
            "refused: NATIVE/generic_prefill: kv_dtype = nvfp4 (head_dim 20, v_head_dim 20), "
            "supports {f32, bf16, fp16, fp8_e4m3, int8}; set by --kv-dtype; fix: --kv-dtype one "
            "of {f32, bf16, fp16, fp8_e4m3, int8}");
  EXPECT_EQ(choice.Why(), "no backend supports the layer");
}

TEST(Selector, LatentsOfFourBitsAreRefused) {
  const BackendTable table = Builtin();
  AttentionSpec spec = Spec();
  spec.kv_heads = spec.heads;
  spec.mla = MlaGeometry{0, 512, 64, 64, 64};
  spec.kv_dtype = DType::kF4E2M1;
  const SpecOrigins origins = {.kv_dtype = {Origin::Kind::kUser, "--kv-dtype"}};
  const Choice choice = SelectBackend({"VANILLA", kOption}, spec, {}, table, origins);
  EXPECT_EQ(choice.backend, nullptr);
  EXPECT_EQ(choice.RefusalTexts()[0],
            "refused: VANILLA/loops: kv_dtype = nvfp4, supports {f32, bf16, fp16, fp8_e4m3, int8}; "
            "set by --kv-dtype; fix: --kv-dtype one of {f32, bf16, fp16, fp8_e4m3, int8}");
}

TEST(Selector, DTypesByKindOfLayerNeedABackendThatMixesThem) {
  const BackendTable table = Builtin();
  AttentionSpec spec = Spec();
  spec.kv_dtype = DType::kBF16;
  spec.other_kv_dtype = DType::kI8;
  const SpecOrigins origins = {.kv_dtype = {Origin::Kind::kUser, "--kv-dtype"}};
  const Choice choice = SelectBackend({"VANILLA", kOption}, spec, {}, table, origins);
  EXPECT_EQ(choice.backend, nullptr);
  EXPECT_EQ(choice.RefusalTexts()[0],
            "refused: VANILLA/loops: mixed_kv = bf16, int8 in other layers, supports none; set by "
            "--kv-dtype; fix: --attn-backend NATIVE or FLASHINFER");
  EXPECT_EQ(SelectBackend({"auto", {}}, spec, {}, table, origins).backend->name(), "NATIVE");
}

TEST(Selector, BackendsNeedRowsForTheNeededPhases) {
  BackendTable table = Builtin();
  std::erase_if(table.rows, [](const KernelRow& row) {
    return row.phase == AttentionPhase::kDecode || row.kernel == "bf16_prefill";
  });
  const Choice decoder = SelectBackend({"NATIVE", kOption}, Spec(), {}, table);
  EXPECT_EQ(decoder.backend, nullptr);
  ASSERT_EQ(decoder.refusals.size(), 1u);
  EXPECT_THAT(decoder.RefusalTexts()[0],
              HasSubstr("refused: NATIVE: phase = decode, supports none"));
  AttentionSpec spec = Spec();
  spec.kind = AttentionKind::kEncoder;
  const Choice encoder = SelectBackend({"NATIVE", kOption}, spec, {}, table);
  ASSERT_NE(encoder.backend, nullptr);
  EXPECT_EQ(encoder.decode, nullptr);
  EXPECT_EQ(encoder.Why(), "prefill generic_prefill");
}

TEST(Selector, SpecsThatCannotBe) {
  const BackendTable table = Builtin();
  const float* table_at = nullptr;
  const auto check = [&](void (*spoil)(AttentionSpec&, const float**), const char* expected) {
    AttentionSpec spec = Spec();
    spoil(spec, const_cast<const float**>(&table_at));
    const Choice choice = SelectBackend({"auto", {}}, spec, {}, table);
    EXPECT_EQ(choice.backend, nullptr) << expected;
    ASSERT_EQ(choice.refusals.size(), 1u) << expected;
    EXPECT_THAT(choice.RefusalTexts()[0], HasSubstr(expected));
  };
  using S = AttentionSpec&;
  using T = const float**;
  check([](S s, T) { s.heads = 0; },
        "selector: heads = 0, supports 1..1048576; set by the checkpoint");
  check([](S s, T) { s.kv_heads = 3; }, "kv_heads = 3, supports divisors of heads = 4");
  check([](S s, T) { s.head_dim = -1; }, "head_dim = -1");
  check([](S s, T) { s.v_head_dim = int64_t{1} << 40; }, "v_head_dim = 1099511627776");
  check([](S s, T) { s.scale = NAN; }, "scale = nan");
  check([](S s, T) { s.softcap = -1; }, "softcap = -1");
  check([](S s, T) { s.window = 0; }, "window = 0");
  check([](S s, T) { s.chunk = -4; }, "chunk = -4");
  check([](S s, T) { s.page_tokens = 24; }, "page_tokens = 24, supports a power of two of 16..256");
  check([](S s, T) { s.kv_layout = KvLayout::kRow; }, "kv_layout = row");
  check([](S s, T) { s.kind = AttentionKind::kCross, s.window = 4; }, "kind = cross");
  check(
      [](S s, T) {
        s.mla = MlaGeometry{0, 20, 16, -1, 12};
      },
      "(q_lora_rank 0, kv_lora_rank 20, qk_nope_head_dim 16, qk_rope_head_dim -1, v_head_dim 12)");
  check(
      [](S s, T) {
        s.mla = MlaGeometry{0, 20, 16, 8, 12}, s.kind = AttentionKind::kEncoder;
      },
      "kind = encoder, supports decoder, with MLA geometry");
  check([](S s, T t) { s.relative_bias = {t, 3, 16, true}; }, "buckets = 3, supports 4 and more");
  check([](S s, T t) { s.relative_bias = {t, 32, 16, false}; }, "max_distance = 16, supports 17..");
}

TEST(Selector, MatrixHasALinePerRow) {
  const std::string matrix = CapabilityMatrix(Builtin());
  EXPECT_THAT(matrix,
              HasSubstr("NATIVE      generic_decode   decode   reference         {f32, bf16, fp16, "
                        "fp8_e4m3, int8, nvfp4}  {f32, bf16, fp16, fp8_e4m3, int8}  any"));
  EXPECT_EQ(std::count(matrix.begin(), matrix.end(), '\n'), 8);
  for (const FeatureRow& f : Features()) EXPECT_THAT(matrix, HasSubstr(std::string(f.name)));
}

}  // namespace
}  // namespace tenon::test
