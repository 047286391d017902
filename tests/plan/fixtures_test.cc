// The configs that users of other engines stumbled over, one folder each in tests/fixtures: served
// as the rule says, with the origin of what matters, or refused with one problem that names the
// value, what is allowed, who set it and what to do.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include "plan/weights_fixtures.h"
#include "plan/wish.h"
#include "support/words.h"
#include "tenon/attention/selector.h"
#include "tenon/config/rope_parameters.h"
#include "tenon/modules/attention.h"
#include "tenon/ops/kernel_choice.h"

namespace tenon {
namespace {

using test::DataPath;
using test::EditedModel;
using test::ExpectWords;
using test::PlanPath;

using Words = std::vector<std::string_view>;
using Check = void (*)(const PlannedModel&);

// Served when `check` is there; else refused with these words.
struct Row {
  std::string name;
  Check check = nullptr;
  Words words = {};
};
void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }
std::string NameOfRow(const testing::TestParamInfo<Row>& info) { return info.param.name; }

// Origin of a key in the record of what was read; "not read" when it is not there.
std::string OriginOf(const PlannedModel& plan, std::string_view key) {
  const Json record = plan.reader->ToJson();
  for (const Json& row : record.Find("read")->as_array()) {
    if (row.Find("key")->as_string() == key) return row.Find("origin")->as_string();
  }
  return "not read";
}

bool HasDecision(const PlannedModel& plan, std::string_view field, std::string_view word) {
  const auto& decisions = plan.context->ledger.decisions();
  return std::any_of(decisions.begin(), decisions.end(), [&](const Decision& d) {
    return d.field == field && (d.why + " " + d.resolved).find(word) != std::string::npos;
  });
}

bool HasStep(const PlannedModel& plan, std::string_view what, std::string_view why) {
  const auto& trace = plan.resolution.trace;
  return std::any_of(trace.begin(), trace.end(), [&](const ResolutionStep& step) {
    return step.what == what && step.why.find(why) != std::string::npos;
  });
}

void ExpectOneProblem(const Result<std::unique_ptr<PlannedModel>>& plan, const Words& words) {
  ASSERT_FALSE(plan.ok()) << "it is served";
  EXPECT_EQ(plan.code(), StatusCode::kRefused) << plan.message();
  for (const std::string_view word : words) ExpectWords(plan.message(), {word});
  ExpectWords(plan.message(), {"fix:"});
  EXPECT_EQ(plan.message().find('\n'), std::string::npos) << plan.message();
}

std::vector<std::pair<int64_t, std::string>> EndsOf(const PlannedModel& plan) {
  std::vector<std::pair<int64_t, std::string>> ends;
  for (const auto& id : plan.generation.eos) ends.emplace_back(id.value, id.origin.Text());
  std::sort(ends.begin(), ends.end());
  return ends;
}

// The windows of layers 0, 1, ...; 0: none.
std::vector<int64_t> WindowsOf(const PlannedModel& plan) {
  std::vector<int64_t> windows;
  for (int64_t layer = 0; layer < plan.config->layers.value; ++layer) {
    const AttentionCore* core = plan.context->attention_layers.at(std::to_string(layer));
    windows.push_back(core->spec().window.value_or(0));
  }
  return windows;
}

// --- config.json alone

std::vector<Row> Identities() {
  return {
      {"llamamodel_headless",
       [](const PlannedModel& plan) {
         EXPECT_EQ(plan.resolution.stated, "LlamaModel");
         EXPECT_EQ(plan.resolution.architecture, "LlamaForCausalLM");
         EXPECT_TRUE(plan.resolution.headless);
         EXPECT_FALSE(plan.context->has_logits);
         constexpr int64_t kLayer = 2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 96 + 2 * 64;
         EXPECT_EQ(plan.memory.weights_stored, 2 * (256 * 64 + 64 + 2 * kLayer)) << "no head";
         EXPECT_TRUE(HasStep(plan, "variant", "'LlamaModel' is its base"));
       }},
      {"arch_missing",
       [](const PlannedModel& plan) {
         EXPECT_EQ(plan.resolution.architecture, "LlamaForCausalLM");
         EXPECT_TRUE(HasStep(plan, "architecture", "architectures is absent; model_type 'llama'"));
       }},
      {.name = "arch_typo",
       .words = {"'LlamaForCasualLM' is unknown", "did you mean LlamaForCausalLM", "config.json",
                 "tenon models"}},
      {"unknown_model_type",
       [](const PlannedModel& plan) {
         EXPECT_EQ(plan.resolution.architecture, "LlamaForCausalLM");
         EXPECT_TRUE(HasStep(plan, "model_type", "unknown; the architecture decides"));
       }},
      // When drafts of EAGLE-3 are served: a check of the draft's vocabulary of 128.
      {.name = "draft_vocab_size",
       .words = {"'EAGLE3LlamaForCausalLM'", "the checkpoint's 'LlamaForCausalLM'",
                 "draft_vocab_size is present", "config.json", "known, but not built"}},
      {"text_config_nested",
       [](const PlannedModel& plan) {
         EXPECT_EQ(plan.config->hidden.value, 64);
         EXPECT_EQ(plan.config->hidden.origin.Text(), "config.json: text_config.hidden_size");
         EXPECT_EQ(plan.config->vocab.value, 256);
         EXPECT_EQ(plan.config->kv_heads.value[0], 2);
         EXPECT_EQ(plan.config->kv_heads.origin.Text(),
                   "config.json: text_config.num_key_value_heads");
         EXPECT_EQ(plan.config->stored_dtype.value, DType::kBF16);
         EXPECT_EQ(plan.config->tie_embeddings.origin.Text(), "config.json: tie_word_embeddings");
         EXPECT_EQ(EndsOf(plan), (std::vector<std::pair<int64_t, std::string>>{
                                     {2, "config.json: text_config.eos_token_id"}}));
         EXPECT_TRUE(plan.reader->UnreadKeys().empty());
       }},
  };
}

std::vector<Row> Ropes() {
  return {
      {.name = "rope_type_vs_type",
       .words = {"rope_scaling.rope_type = \"dynamic\"", "type = \"linear\"", "must be the same",
                 "set by config.json: rope_scaling.rope_type"}},
      {"rope_parameters_nested",
       [](const PlannedModel& plan) {
         const RopeParameters& rope = plan.config->rope.value;
         EXPECT_EQ(rope.type, RopeType::kLinear);
         EXPECT_EQ(rope.factor, 4.0);
         EXPECT_EQ(rope.theta, 1e6);
         EXPECT_EQ(OriginOf(plan, "rope_parameters.full_attention.rope_theta"),
                   "config.json: rope_parameters.full_attention.rope_theta");
       }},
      {"rope_theta_absent",
       [](const PlannedModel& plan) {
         EXPECT_EQ(plan.config->rope.value.theta, 10000);
         EXPECT_EQ(OriginOf(plan, "rope_theta"), "default, config.json: rope_theta is absent");
       }},
      {"yarn_factor_already_in_max_len",
       [](const PlannedModel& plan) {
         // 512 = 4 x 128 is the length with the factor in it: neither it nor the angles get it
         // twice.
         EXPECT_EQ(plan.max_seq_len, 512);
         const RopeParameters& rope = plan.config->rope.value;
         EXPECT_EQ(rope.original_max_position, 128);
         const RopeFrequencies at = ComputeRope(rope, 16, 1, plan.config->max_position.value);
         EXPECT_FLOAT_EQ(at.inv_freq.front(), 1);
         EXPECT_FLOAT_EQ(at.inv_freq.back(), static_cast<float>(std::pow(1e4, -14.0 / 16) / 4));
         EXPECT_FLOAT_EQ(at.attention_factor, static_cast<float>(0.1 * std::log(4.0) + 1));
       }},
      {"yarn_no_original_max",
       [](const PlannedModel& plan) {
         EXPECT_EQ(plan.max_seq_len, 128);
         EXPECT_EQ(plan.config->rope.value.original_max_position, 128);
         EXPECT_EQ(plan.config->rope.value.factor, 4.0);
         EXPECT_EQ(OriginOf(plan, "rope_scaling.original_max_position_embeddings"),
                   "default, config.json: rope_scaling.original_max_position_embeddings is absent");
       }},
  };
}

std::vector<Row> Geometries() {
  return {
      {"head_dim_null",
       [](const PlannedModel& plan) {
         EXPECT_EQ(plan.config->head_dim.value[0], 64 / 4);
         ExpectWords(plan.config->head_dim.origin.Text(),
                     {"hidden / heads", "config.json: hidden_size"});
       }},
      {"head_dim_indivisible",
       [](const PlannedModel& plan) {
         EXPECT_EQ(plan.config->head_dim.value[0], 16);
         EXPECT_EQ(plan.config->head_dim.origin.Text(), "config.json: head_dim");
         EXPECT_EQ(plan.context->attention_layers.at("1")->spec().head_dim, 16);
       }},
      {"kv_heads_missing",
       [](const PlannedModel& plan) {
         EXPECT_EQ(plan.config->kv_heads.value[0], 4);
         ExpectWords(plan.config->kv_heads.origin.Text(),
                     {"as many as heads", "config.json: num_attention_heads"});
       }},
      {.name = "kv_heads_not_divisor",
       .words = {"kv_heads = 3", "must divide heads = 4",
                 "set by config.json: num_key_value_heads"}},
      {.name = "mla_five_numbers",
       .words = {"v_head_dim must be an integer from 1", "q_lora_rank = 24 (config.json",
                 "kv_lora_rank = 32 (config.json", "qk_nope_head_dim = 16 (config.json",
                 "qk_rope_head_dim = 8 (config.json", "v_head_dim = 0 (config.json"}},
      {"sliding_int_all_full",
       [](const PlannedModel& plan) {
         EXPECT_EQ(WindowsOf(plan), (std::vector<int64_t>{0, 0})) << "layer_types says so";
       }},
      {"sliding_window_layer_types_mixed",
       [](const PlannedModel& plan) {
         EXPECT_EQ(WindowsOf(plan), (std::vector<int64_t>{0, 8}));
       }},
      {"max_window_layers_full",
       [](const PlannedModel& plan) {
         EXPECT_EQ(WindowsOf(plan), (std::vector<int64_t>{0, 0})) << "none is at or above layer 2";
         EXPECT_EQ(OriginOf(plan, "max_window_layers"), "config.json: max_window_layers");
       }},
      // A backend without chunks: ABackendWithoutChunksIsRefusedForThem.
      {"chunk_attention_non_supporting_backend",
       [](const PlannedModel& plan) {
         const auto& layers = plan.context->attention_layers;
         EXPECT_EQ(layers.at("0")->spec().chunk, 8);
         EXPECT_EQ(layers.at("1")->spec().chunk, std::nullopt);
         EXPECT_EQ(OriginOf(plan, "attention_chunk_size"), "config.json: attention_chunk_size");
       }},
  };
}

std::vector<Row> Values() {
  return {
      {"dtype_null_plus_dtype",
       [](const PlannedModel& plan) {
         EXPECT_EQ(plan.config->stored_dtype.value, DType::kBF16);
         EXPECT_EQ(plan.config->stored_dtype.origin.Text(), "config.json: dtype");
         constexpr int64_t kLayer = 2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 96 + 2 * 64;
         EXPECT_EQ(plan.memory.weights_stored, 2 * (2 * 256 * 64 + 64 + 2 * kLayer));
       }},
      {.name = "quant_config_version_only",
       .words = {"quantization_config", "names no quant_method", "compressed-tensors", "awq",
                 "set by config.json: quantization_config"}},
      {.name = "quant_config_no_method",
       .words = {"quantization_config", "names no quant_method", "compressed-tensors", "awq",
                 "set by config.json: quantization_config"}},
      {"eos_list",
       [](const PlannedModel& plan) {
         const std::string origin = "config.json: eos_token_id";
         EXPECT_EQ(EndsOf(plan), (std::vector<std::pair<int64_t, std::string>>{
                                     {2, origin}, {5, origin}, {7, origin}}));
       }},
      // The tokenizer's own comes in when text is generated: tests/engine/fixtures_test.cc.
      {"eos_conflict",
       [](const PlannedModel& plan) {
         EXPECT_EQ(EndsOf(plan), (std::vector<std::pair<int64_t, std::string>>{
                                     {2, "config.json: eos_token_id"},
                                     {3, "generation_config.json: eos_token_id"}}));
       }},
  };
}

std::vector<Row> ConfigRows() {
  std::vector<Row> rows;
  for (const auto& part : {Identities(), Ropes(), Geometries(), Values()}) {
    rows.insert(rows.end(), part.begin(), part.end());
  }
  return rows;
}

std::string ConfigPath(const std::string& name) { return DataPath("fixtures/config_only/" + name); }

class ConfigFixture : public testing::TestWithParam<Row> {};

TEST_P(ConfigFixture, HasItsOutcome) {
  const auto plan = PlanPath(ConfigPath(GetParam().name));
  if (GetParam().check == nullptr) {
    ExpectOneProblem(plan, GetParam().words);
  } else {
    ASSERT_TRUE(plan.ok()) << plan.message();
    GetParam().check(**plan);
  }
}

INSTANTIATE_TEST_SUITE_P(ConfigOnly, ConfigFixture, testing::ValuesIn(ConfigRows()), NameOfRow);

TEST(ConfigFixtures, EveryFolderHasARowAndEveryRowAFolder) {
  std::set<std::string> folders;
  for (const auto& entry : std::filesystem::directory_iterator(ConfigPath(""))) {
    folders.insert(entry.path().filename());
  }
  std::set<std::string> names;
  for (const Row& row : ConfigRows()) EXPECT_TRUE(names.insert(row.name).second) << row.name;
  EXPECT_EQ(folders, names);
}

// --- the same rules, another mistake

Result<std::unique_ptr<PlannedModel>> PlanEdited(const std::string& name,
                                                 void (*edit)(Json& config)) {
  Json config = *ReadJsonFile(ConfigPath(name) + "/config.json");
  edit(config);
  const test::TempDir directory;
  directory.Write("config.json", config.Dump());
  return PlanPath(directory.path());
}

TEST(ConfigRules, ArchitecturesMayBeNullOrNested) {
  const auto null = PlanEdited("arch_missing", [](Json& c) { c.Set("architectures", Json()); });
  ASSERT_TRUE(null.ok()) << null.message();
  const auto nested = PlanEdited("text_config_nested", [](Json& c) {
    Json inner = *c.Find("text_config");
    inner.Set("architectures", *c.Find("architectures"));
    c = Json(Json::Object{});
    c.Set("language_config", std::move(inner));
  });
  ASSERT_TRUE(nested.ok()) << nested.message();
  EXPECT_EQ((*nested)->config->hidden.origin.Text(), "config.json: language_config.hidden_size");
  ExpectOneProblem(PlanEdited("arch_missing", [](Json& c) { c.Set("model_type", "lama"); }),
                   {"names no architectures", "model_type 'lama' is unknown", "llama"});
  ExpectOneProblem(PlanEdited("arch_missing", [](Json& c) { c.Set("model_type", Json()); }),
                   {"neither architectures nor model_type", "config.json"});
}

TEST(ConfigRules, AKeyAtTheTopCountsMore) {
  const auto plan = PlanEdited("text_config_nested", [](Json& c) {
    c.Set("num_key_value_heads", 4);
    c.Set("dtype", Json());
  });
  ASSERT_TRUE(plan.ok()) << plan.message();
  EXPECT_EQ((*plan)->config->kv_heads.value[0], 4);
  EXPECT_EQ((*plan)->config->stored_dtype.origin.Text(), "config.json: text_config.dtype");
  ExpectOneProblem(PlanEdited("text_config_nested", [](Json& c) { c.Set("vocab_size", 0); }),
                   {"vocab_size = 0", "an integer from 1", "set by config.json: vocab_size"});
}

TEST(ConfigRules, RopeTypesThatAgreeAreOne) {
  const auto plan = PlanEdited("rope_type_vs_type", [](Json& c) {
    Json rope = *c.Find("rope_scaling");
    rope.Set("rope_type", "linear");
    c.Set("rope_scaling", std::move(rope));
  });
  ASSERT_TRUE(plan.ok()) << plan.message();
  EXPECT_EQ((*plan)->config->rope.value.type, RopeType::kLinear);
}

TEST(ConfigRules, TwoRopesAreTooManyForLayersThatAreAlike) {
  ExpectOneProblem(PlanEdited("rope_parameters_nested",
                              [](Json& c) {
                                Json rope = *c.Find("rope_parameters");
                                rope.Set("sliding_attention", *rope.Find("full_attention"));
                                c.Set("rope_parameters", std::move(rope));
                              }),
                   {"rope_parameters", "full_attention, sliding_attention", "rotate alike"});
}

TEST(ConfigRules, WithoutHeadDimHeadsMustDivide) {
  ExpectOneProblem(
      PlanEdited("head_dim_indivisible", [](Json& c) { c.Set("head_dim", Json()); }),
      {"head_dim is absent", "64 / 6", "config.json: num_attention_heads", "add head_dim"});
}

TEST(ConfigRules, AllThatIsWrongWithMlaIsOneProblem) {
  ExpectOneProblem(PlanEdited("mla_five_numbers",
                              [](Json& c) {
                                c.Set("q_lora_rank", 0);
                                c.Set("kv_lora_rank", Json());
                                c.Set("qk_rope_head_dim", 7);
                              }),
                   {"q_lora_rank must be", "or null", "kv_lora_rank must be", "absent",
                    "qk_rope_head_dim = 7", "even", "v_head_dim = 0"});
}

// A family that has the window on all of its layers.
TEST(ConfigRules, AWindowReachesEveryLayer) {
  EditedModel model("mixtral");
  for (const int64_t window : {8, 0}) {
    const Json value = window > 0 ? Json(window) : Json();
    const auto plan = PlanPath(model.Set("sliding_window", value).path());
    ASSERT_TRUE(plan.ok()) << plan.message();
    EXPECT_EQ(WindowsOf(**plan), (std::vector<int64_t>{window, window}));
  }
  ExpectOneProblem(PlanPath(model.Set("sliding_window", 0).path()),
                   {"sliding_window = 0", "an integer from 1", "set by config.json"});
}

TEST(ConfigRules, ABackendWithoutChunksIsRefusedForThem) {
  AttentionSpec spec;
  spec.heads = spec.kv_heads = 2;
  spec.head_dim = spec.v_head_dim = 16;
  spec.scale = 0.25f;
  spec.chunk = 8;
  const MachineProfile machine = DetectMachine();
  BackendTable table = BuiltinBackends(KernelsFor(machine.isa));
  ASSERT_NE(SelectBackend({"auto"}, spec, machine, table).backend, nullptr);
  for (KernelRow& row : table.rows) row.features &= ~static_cast<FeatureSet>(Feature::kChunk);
  const SpecOrigins origins = {
      .model = {Origin::Kind::kCheckpoint, "config.json: attention_chunk_size"}};
  const Choice choice = SelectBackend({"auto"}, spec, machine, table, origins);
  EXPECT_EQ(choice.backend, nullptr);
  ASSERT_FALSE(choice.refusals.empty());
  bool named = false;
  for (const std::string& text : choice.RefusalTexts()) {
    if (text.find("chunk = 8") == std::string::npos) continue;
    named = true;
    ExpectWords(text, {"supports none", "set by config.json: attention_chunk_size", "fix:"});
  }
  EXPECT_TRUE(named);
}

// --- with weights

std::vector<Row> WeightsRows() {
  return {
      {"tied_with_lm_head",
       [](const PlannedModel& plan) { EXPECT_TRUE(HasDecision(plan, "lm_head", "own")); }},
      {.name = "untied_without_lm_head",
       .words = {"lm_head.weight: absent", "tie_word_embeddings = false", "config.json"}},
      {.name = "missing_shard",
       .words = {"1 of 4 shards", "model-00002-of-00004.safetensors",
                 "model.safetensors.index.json names", "download"}},
      {"stray_consolidated",
       [](const PlannedModel& plan) {
         EXPECT_TRUE(HasDecision(plan, "checkpoint", "not used: \"consolidated.safetensors\""));
         EXPECT_EQ(plan.checkpoint->files().size(), 1u);
       }},
      {"stale_index",
       [](const PlannedModel& plan) {
         EXPECT_TRUE(HasDecision(plan, "checkpoint", "not used: model.safetensors.index.json"));
       }},
      {.name = "stale_index_of_shards",
       .words = {"model.layers.7.mlp.up_proj.weight", "model-00001-of-00004.safetensors", "absent",
                 "model.safetensors.index.json lists"}},
      {.name = "duplicate_tensor",
       .words = {"model.norm.weight", "one.safetensors", "two.safetensors", "is also in"}},
      {.name = "wrong_shape",
       .words = {"model.layers.1.self_attn.k_proj.weight", "[48, 64]", "config says [64, 64]"}},
      {.name = "bias_unused",
       .words = {"model.layers.0.self_attn.q_proj.bias", "does not use this tensor",
                 "the model has model.layers.0.self_attn.q_proj.weight",
                 "--allow-downgrade weights.unused"}},
      {.name = "quantised_missing_scale",
       .words = {"model.layers.1.mlp.up_proj.weight: its scales are missing",
                 "weight_scale_inv or weight_scale", "fp8, a scale per 128x128"}},
      {.name = "truncated_safetensors",
       .words = {"model.safetensors", "truncated", "download it again"}},
      {.name = "header_overflow",
       .words = {"model.safetensors", "header length = 18446744073709551615", "100000000"}},
  };
}

class WeightsFixtureTest : public testing::TestWithParam<Row> {};

TEST_P(WeightsFixtureTest, HasItsOutcome) {
  test::WeightsFixture fixture(GetParam().name);
  const auto plan = PlanPath(fixture.path());
  if (GetParam().check == nullptr) {
    ExpectOneProblem(plan, GetParam().words);
  } else {
    ASSERT_TRUE(plan.ok()) << plan.message();
    GetParam().check(**plan);
  }
}

INSTANTIATE_TEST_SUITE_P(Weights, WeightsFixtureTest, testing::ValuesIn(WeightsRows()), NameOfRow);

// Without files and without a word about it, what is assumed is told.
TEST(ConfigRules, AnAssumedDtypeIsADecision) {
  const auto plan = PlanEdited("dtype_null_plus_dtype", [](Json& c) { c.Set("dtype", Json()); });
  ASSERT_TRUE(plan.ok()) << plan.message();
  EXPECT_TRUE(HasDecision(**plan, "weights.dtype", "f32"));
  const auto stated = PlanPath(ConfigPath("dtype_null_plus_dtype"));
  ASSERT_TRUE(stated.ok()) << stated.message();
  EXPECT_FALSE(HasDecision(**stated, "weights.dtype", ""));
  EXPECT_EQ((*plan)->memory.weights_stored, 2 * (*stated)->memory.weights_stored);
}

// What the files hold counts, whatever the config says of it or does not.
TEST(WeightsRules, TheFilesSayTheirDtype) {
  const auto stated = test::PlanGolden("llama");
  ASSERT_TRUE(stated.ok()) << stated.message();
  EditedModel model("llama");
  for (const Json& dtype : {Json(), Json("float32")}) {
    const auto plan = PlanPath(model.Set("torch_dtype", dtype).path());
    ASSERT_TRUE(plan.ok()) << plan.message();
    EXPECT_EQ((*plan)->memory.weights_stored, (*stated)->memory.weights_stored);
  }
}

}  // namespace
}  // namespace tenon
