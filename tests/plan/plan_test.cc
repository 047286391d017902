// The line from a path to a plan: where it stops, that each phase gives all of its errors at once,
// and what is recorded on the way.
#include "tenon/plan/plan.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "plan/edited.h"
#include "plan/wish.h"
#include "support/words.h"
#include "tenon/modules/attention.h"

namespace tenon {
namespace {

using test::EditedModel;
using test::ExpectWords;
using test::PlanGolden;
using test::PlanPath;

int CountOf(std::string_view text, std::string_view word) {
  int count = 0;
  for (size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) {
    ++count;
  }
  return count;
}

void ExpectError(const Result<std::unique_ptr<PlannedModel>>& plan, StatusCode code,
                 std::initializer_list<std::string_view> words) {
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.code(), code) << plan.message();
  ExpectWords(plan.message(), words);
}

std::vector<Decision> DecisionsOf(const PlannedModel& plan, std::string_view field) {
  std::vector<Decision> decisions;
  for (const Decision& decision : plan.context->ledger.decisions()) {
    if (decision.field == field) decisions.push_back(decision);
  }
  return decisions;
}

// --- options

TEST(PlanOptions, AllOfThemAtOnce) {
  ExpectError(PlanGolden("llama", {.compute = "int3", .backend = "nope", .kv_dtype = "f31"}),
              StatusCode::kUsage,
              {"compute", "int3", "attn-backend", "nope", "NATIVE", "VANILLA", "kv-dtype", "f31",
               "auto", "bf16"});
}

// Of those who fill the struct themselves: one mistake, not one for each layer.
TEST(PlanOptions, AnUnknownBackendIsOneError) {
  const auto registry = MakeRegistry();
  EngineOptions options = EngineOptionTable().Defaults();
  options.attn_backend = {"nope", {Origin::Kind::kUser, "--attn-backend"}};
  const auto plan = PlanModel(test::DataPath("goldens/llama"), options, *registry);
  ExpectError(plan, StatusCode::kUsage,
              {"attn-backend = 'nope' (set by --attn-backend)", "NATIVE", "VANILLA"});
  EXPECT_EQ(CountOf(plan.message(), "nope"), 1);
}

TEST(PlanOptions, NamesAreCaseInsensitive) {
  const auto plan = PlanGolden("llama", {.backend = "vanilla"});
  ASSERT_TRUE(plan.ok()) << plan.message();
  for (const auto& [key, core] : (*plan)->context->attention_layers) {
    EXPECT_EQ(core->backend().name(), "VANILLA") << key;
  }
}

TEST(PlanOptions, AutoIsResolvedAndRecordedWhatWasAskedForIsNot) {
  const auto automatic = PlanGolden("llama", {.compute = "auto"});
  ASSERT_TRUE(automatic.ok());
  ASSERT_EQ(DecisionsOf(**automatic, "kv_dtype").size(), 1u);
  ASSERT_EQ(DecisionsOf(**automatic, "compute").size(), 1u);
  EXPECT_EQ(DecisionsOf(**automatic, "kv_dtype")[0].resolved,
            DecisionsOf(**automatic, "compute")[0].resolved == "bf16" ? "bf16" : "f32")
      << "cached as computed";
  EXPECT_EQ(DecisionsOf(**automatic, "attention.backend").size(), 2u) << "one for each layer";
  const auto asked =
      PlanGolden("llama", {.compute = "fp32", .kv_dtype = "bf16", .max_seq_len = 64});
  ASSERT_TRUE(asked.ok()) << asked.message();
  EXPECT_TRUE(DecisionsOf(**asked, "kv_dtype").empty());
  EXPECT_TRUE(DecisionsOf(**asked, "compute").empty());
  EXPECT_TRUE(DecisionsOf(**asked, "max_seq_len").empty());
  for (const auto& [key, core] : (*asked)->context->attention_layers) {
    EXPECT_EQ(core->spec().kv_dtype, DType::kBF16) << key;
  }
  for (const Decision& decision : (*asked)->context->ledger.decisions()) {
    EXPECT_NE(decision.kind, DecisionKind::kDowngraded) << decision.field;
  }
}

TEST(PlanOptions, EveryDTypeOfCachedRowsHasAName) {
  for (const KvDType& kv : KvDTypes()) {
    const auto plan = PlanGolden("llama_hd64", {.kv_dtype = std::string(kv.name)});
    ASSERT_TRUE(plan.ok()) << plan.message();
    for (const auto& [key, core] : (*plan)->context->attention_layers)
      EXPECT_EQ(core->spec().kv_dtype, kv.dtype) << key;
  }
  const auto plan = PlanGolden("llama_hd64", {.kv_dtype = "FP8"});
  ASSERT_TRUE(plan.ok()) << plan.message();
  EXPECT_EQ((*plan)->context->options.kv_dtype.value, DType::kF8E4M3);
}

// Every layer of this family has a window, of others none.
TEST(PlanOptions, DTypesByKindOfLayer) {
  for (const auto& [wanted, dtype] :
       {std::pair{"window=int8", DType::kI8}, {"Window=FP16", DType::kF16}}) {
    test::EditedModel windows("mixtral");
    const auto plan = test::PlanPath(windows.Set("sliding_window", 8).path(), {.kv_dtype = wanted});
    ASSERT_TRUE(plan.ok()) << plan.message();
    for (const auto& [key, core] : (*plan)->context->attention_layers) {
      EXPECT_EQ(core->spec().kv_dtype, dtype) << key;
      EXPECT_EQ(core->spec().other_kv_dtype, DType::kF32) << "auto, as computed";
    }
  }
  ExpectError(PlanGolden("llama", {.kv_dtype = "full=bf16,window=int8"}), StatusCode::kUsage,
              {"kv-dtype = full=bf16,window=int8 (set by --kv-dtype) names window, but the model "
               "has no layer with a window or chunk; fix: leave window out"});
  const auto same = PlanGolden("llama", {.backend = "VANILLA", .kv_dtype = "full=bf16"});
  EXPECT_FALSE(same.ok()) << "layers of the other kind would have another dtype";
  ASSERT_TRUE(PlanGolden("llama", {.kv_dtype = "full=int8"}).ok());
}

TEST(PlanOptions, RowsOfNoWidthAreRefused) {
  const auto plan = PlanGolden("llama_gqa_odd", {.kv_dtype = "nvfp4"});
  ASSERT_FALSE(plan.ok());
  ExpectError(plan, StatusCode::kRefused,
              {"kv_dtype = nvfp4 (head_dim ", "set by --kv-dtype",
               "fix: --kv-dtype one of {f32, "
               "bf16, fp16, fp8_e4m3, int8}"});
}

TEST(PlanOptions, RowsAreCachedAsComputed) {
  for (const char* isa : {"auto", "baseline"}) {
    const auto plan = PlanGolden("llama", {.compute = "fp32", .isa = isa});
    ASSERT_TRUE(plan.ok()) << plan.message();
    EXPECT_EQ(DecisionsOf(**plan, "kv_dtype")[0].resolved, "f32") << isa;
  }
}

TEST(PlanOptions, ComputeFollowsTheInstructionSet) {
  const auto plain = PlanGolden("llama", {.compute = "auto", .isa = "baseline"});
  ASSERT_TRUE(plain.ok()) << plain.message();
  EXPECT_EQ((*plain)->context->options.compute.value, Compute::kFp32);
  ExpectError(PlanGolden("llama", {.compute = "bf16", .isa = "baseline"}), StatusCode::kUnavailable,
              {"compute = bf16 (set by --compute)", "isa = baseline", "--compute auto"});
  if (DetectMachine().isa < Isa::kAvx512Bf16Vnni) return;
  const auto best = PlanGolden("llama", {.compute = "auto"});
  ASSERT_TRUE(best.ok()) << best.message();
  EXPECT_EQ((*best)->context->options.compute.value, Compute::kBf16);
}

// Packed where the kernels have such products, and said so; asked for where they do not, an error.
TEST(PlanOptions, HowWeightsAreHeld) {
  const auto form = [](const PlannedModel& plan) {
    const std::vector<Decision> decisions = DecisionsOf(plan, "weights.form");
    EXPECT_EQ(decisions.size(), 1u);
    return decisions.at(0).resolved;
  };
  const auto exact = PlanGolden("llama", {.compute = "fp32"});
  ASSERT_TRUE(exact.ok()) << exact.message();
  EXPECT_EQ(form(**exact), "in-place");
  ExpectError(PlanGolden("llama", {.compute = "fp32", .weights = "packed"}),
              StatusCode::kUnavailable,
              {"weights = packed (set by --weights)", "compute = fp32", "fix: --weights auto"});
  ExpectError(PlanGolden("llama", {.weights = "sideways"}), StatusCode::kUsage,
              {"sideways", "auto", "in-place", "packed"});
  if (DetectMachine().isa < Isa::kAvx512Bf16Vnni) return;
  const auto packed = PlanGolden("llama", {.compute = "auto", .weights = "packed"});
  ASSERT_TRUE(packed.ok()) << packed.message();
  EXPECT_EQ(form(**packed), "packed");
  const auto in_place = PlanGolden("llama", {.compute = "auto", .weights = "in-place"});
  ASSERT_TRUE(in_place.ok()) << in_place.message();
  EXPECT_EQ(form(**in_place), "in-place");
  const auto automatic = PlanGolden("llama", {.compute = "auto"});
  ASSERT_TRUE(automatic.ok()) << automatic.message();
  EXPECT_EQ(form(**automatic), "in-place") << "bf16 is packed only when somebody asks for it";
  // bf16 is filled up to 16 rows and 32 columns.
  int64_t padding = 0;
  for (Module* module : (*packed)->context->modules) {
    for (const Parameter& p : module->parameters()) {
      if (p.held_form() == HeldForm::kRows) continue;
      const int64_t rows = p.shape().rows();
      const int64_t cols = p.shape().dim(-1);
      padding += 2 * ((rows + 15) / 16 * 16 * ((cols + 31) / 32 * 32) - rows * cols);
    }
  }
  EXPECT_GT(padding, 0);
  EXPECT_EQ((*packed)->memory.weights_held, (*in_place)->memory.weights_held + padding);
}

// DESIGN section 6. A dense layer's own: after qkv, attention, the output projection, gate and up,
// down.
TEST(Plan, ADenseDecodeLayerMeetsAtMostFiveTimes) {
  for (const char* compute : {"fp32", "auto"}) {
    const auto plan = PlanGolden("llama", {.compute = compute, .threads = 2});
    ASSERT_TRUE(plan.ok()) << plan.message();
    const StepSummary& decode = (*plan)->steps.back();
    ASSERT_EQ(decode.name, "decode");
    const auto layers = static_cast<int>((*plan)->context->attention_layers.size());
    EXPECT_LE(decode.meetings, 5 * layers + 1) << compute;
  }
}

TEST(PlanOptions, ThreadsAndChunks) {
  const auto plan = PlanGolden("llama", {.prefill_chunk = 32, .threads = 3});
  ASSERT_TRUE(plan.ok()) << plan.message();
  EXPECT_EQ((*plan)->threads, 3);
  EXPECT_EQ((*plan)->prefill_rows(), 32);
  const auto step = [&](size_t i) { return (*plan)->steps.at(i).name; };
  EXPECT_EQ(step(0), "prefill 32");
  EXPECT_EQ(step(1), "decode");
  EXPECT_EQ((*PlanGolden("llama", {.max_seq_len = 20}))->steps[0].name, "prefill 20");
  EXPECT_EQ((*PlanGolden("t5", {.max_seq_len = 20}))->steps[0].name, "encode 20");
  EXPECT_EQ((*PlanGolden("bert", {.max_seq_len = 20}))->steps.size(), 1u);
}

// --- the checkpoint

TEST(Plan, StopsAtWhatIsNoModel) {
  ExpectError(PlanPath(test::DataPath("goldens/no_such_model")), StatusCode::kNotFound,
              {"no_such_model"});
  ExpectError(PlanPath(test::DataPath("goldens/llama/model.safetensors")), StatusCode::kRefused,
              {"no config.json", "fix:"});
  EditedModel unknown("llama");
  unknown.Set("architectures", Json::Array{"LamaForCausalLM"}).Set("model_type", "lama");
  ExpectError(PlanPath(unknown.path()), StatusCode::kRefused,
              {unknown.path(), "'LamaForCausalLM' is unknown", "LlamaForCausalLM", "'lama'"});
}

TEST(Plan, AllErrorsOfTheConfigAtOnce) {
  EditedModel model("llama");
  model.Unset("hidden_size").Set("num_attention_heads", "four").Set("rms_norm_eps", -1);
  const auto plan = PlanPath(model.path());
  ExpectError(plan, StatusCode::kRefused,
              {model.path(), "hidden_size", "num_attention_heads", "four", "rms_norm_eps", "-1"});
}

TEST(Plan, AllErrorsOfTheWeightsAtOnce) {
  EditedModel model("llama");
  model.Set("intermediate_size", 101)
      .Drop("model.layers.1.self_attn.k_proj.weight")
      .Drop("model.norm.weight");
  const auto plan = PlanPath(model.path());
  // gate, up and down of two layers, and the two that are gone.
  ExpectError(plan, StatusCode::kRefused,
              {model.path(), "8 problems", "model.layers.1.self_attn.k_proj.weight: the checkpoint",
               "model.norm.weight: the checkpoint", "[100, 64]", "[101, 64]", "[64, 101]"});
  for (const char* layer : {"0", "1"}) {
    for (const char* name : {"gate", "up", "down"}) {
      EXPECT_EQ(CountOf(plan.message(), std::string("layers.") + layer + ".mlp." + name), 1);
    }
  }
  EXPECT_EQ(plan.message().find("does not use"), std::string::npos)
      << "what is unused is no question while tensors are missing";
}

TEST(Plan, TheHeadFollowsTheFile) {
  const auto own = PlanGolden("llama");
  ASSERT_TRUE(own.ok());
  EditedModel tied("llama");
  tied.Set("tie_word_embeddings", true);
  const auto kept = PlanPath(tied.path());
  ASSERT_TRUE(kept.ok()) << kept.message();
  EXPECT_EQ((*kept)->memory.weights_held, (*own)->memory.weights_held);
  EXPECT_EQ(DecisionsOf(**kept, "lm_head").size(), 1u);
  tied.Drop("lm_head.weight");
  const auto shared = PlanPath(tied.path());
  ASSERT_TRUE(shared.ok()) << shared.message();
  EXPECT_EQ((*shared)->memory.weights_held, (*own)->memory.weights_held - 2 * 256 * 64);
  tied.Set("tie_word_embeddings", false);
  ExpectError(PlanPath(tied.path()), StatusCode::kRefused, {"lm_head.weight: absent", "fix:"});
}

TEST(Plan, ATensorThatNothingUsesNeedsConsent) {
  EditedModel model("llama");
  model.Add("model.extra.weight", {3}).Add("model.layers.2.mlp.up_proj.weight", {100, 64});
  const auto strict = PlanPath(model.path());
  ExpectError(strict, StatusCode::kRefused,
              {"2 problems", "model.extra.weight: the model does not use",
               "model.layers.2.mlp.up_proj.weight: the model does not use",
               "--allow-downgrade weights.unused"});
  const auto lenient = PlanPath(model.path(), {.allowed = "weights.unused"});
  ASSERT_TRUE(lenient.ok()) << lenient.message();
  const std::vector<Decision> decisions = DecisionsOf(**lenient, "weights.unused");
  const auto downgrade = std::find_if(decisions.begin(), decisions.end(), [](const Decision& d) {
    return d.kind == DecisionKind::kDowngraded;
  });
  ASSERT_NE(downgrade, decisions.end());
  EXPECT_EQ(downgrade->resolved, "ignored");
  ExpectWords(downgrade->why, {"2 tensors"});
  // Consent to something else is none.
  EXPECT_FALSE(PlanPath(model.path(), {.allowed = "construction.meta"}).ok());
}

TEST(Plan, WhatTheFamilyKnowsAsUnusedIsRecorded) {
  EditedModel model("mixtral");
  model.Add("model.layers.0.self_attn.rotary_emb.inv_freq", {8})
      .Add("model.layers.1.self_attn.rotary_emb.inv_freq", {8});
  const auto plan = PlanPath(model.path());
  ASSERT_TRUE(plan.ok()) << plan.message();
  const std::vector<Decision> decisions = DecisionsOf(**plan, "weights.unused");
  ASSERT_EQ(decisions.size(), 1u);
  EXPECT_EQ(decisions[0].resolved, "2 skipped");
  EXPECT_EQ(decisions[0].kind, DecisionKind::kResolved);
  EXPECT_EQ((*plan)->memory.weights_held, (*PlanGolden("mixtral"))->memory.weights_held);
}

TEST(Plan, AConfigWithoutWeightsIsPlannedFromItsDtype) {
  EditedModel model("llama");
  const auto whole = PlanPath(model.WithoutWeights().path());
  ASSERT_TRUE(whole.ok()) << whole.message();
  EXPECT_EQ((*whole)->index, nullptr);
  EXPECT_EQ((*whole)->memory.weights_held, (*PlanGolden("llama"))->memory.weights_held);
  const auto wide = PlanPath(model.Set("torch_dtype", "float32").path());
  ASSERT_TRUE(wide.ok()) << wide.message();
  EXPECT_EQ((*wide)->memory.weights_stored, 2 * (*whole)->memory.weights_stored);
}

TEST(Plan, QuantisationThatCannotBeComputedIsRefusedFirst) {
  EditedModel model("llama");
  Json method;
  method.Set("quant_method", "awq");
  method.Set("bits", 4);
  method.Set("group_size", 128);
  // Also when the weights do not fit the config: this says why.
  model.Set("quantization_config", std::move(method)).Set("intermediate_size", 101);
  const auto plan = PlanPath(model.path());
  ExpectError(plan, StatusCode::kRefused, {"awq"});
  EXPECT_EQ(plan.message().find("[101, 64]"), std::string::npos) << plan.message();
}

TEST(Plan, GgufHasTheSameGeometryAsItsMetadata) {
  const auto plan = PlanPath(test::DataPath("goldens_gguf/llama_q4_0.gguf"));
  ASSERT_TRUE(plan.ok()) << plan.message();
  const GgufMetadata& metadata = *(*plan)->checkpoint->gguf();
  EXPECT_EQ((*plan)->config->layers.value, *metadata.Int("llama.block_count"));
  EXPECT_EQ((*plan)->config->hidden.value, *metadata.Int("llama.embedding_length"));
  EXPECT_EQ((*plan)->max_seq_len, *metadata.Int("llama.context_length"));
  EXPECT_EQ(static_cast<int64_t>((*plan)->context->attention_layers.size()),
            *metadata.Int("llama.block_count"));
  const AttentionSpec& spec = (*plan)->context->attention_layers.at("0")->spec();
  EXPECT_EQ(spec.heads, *metadata.Int("llama.attention.head_count"));
  EXPECT_EQ(spec.kv_heads, *metadata.Int("llama.attention.head_count_kv"));
}

TEST(Plan, GgufOfAFamilyThatIsNotServed) {
  const test::TempDir directory;
  const std::string path = directory / "m.gguf";
  ASSERT_TRUE(
      WriteGguf(path, GgufBuilder().SetString("general.architecture", "starcoder2"), {}).ok());
  ExpectError(PlanPath(path), StatusCode::kRefused, {"general.architecture", "starcoder2"});
}

// What generation reads: the files' end tokens and the family's, each once.
TEST(Plan, TheAuthorsWishesForGeneration) {
  EditedModel model("llama");
  model.Set("eos_token_id", Json::Array{2, 5});
  const std::string path = model.path();
  ASSERT_TRUE(WriteFile(path + "/generation_config.json",
                        R"({"eos_token_id": [5, 9], "do_sample": true, "temperature": 0.5})")
                  .ok());
  const auto plan = PlanPath(path);
  ASSERT_TRUE(plan.ok()) << plan.message();
  std::vector<int64_t> ends;
  for (const Sourced<int64_t>& id : (*plan)->generation.eos) ends.push_back(id.value);
  std::sort(ends.begin(), ends.end());
  EXPECT_EQ(ends, (std::vector<int64_t>{2, 5, 9}));
  EXPECT_EQ((*plan)->options.temp.value, 0.5);
}

}  // namespace
}  // namespace tenon
