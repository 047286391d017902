// Making the model: constructors that compute with weights, that throw, targets that refuse, and
// what a second construction may not inherit; models that libraries bring, with defaults and a
// config reader of their own; base models; large configs.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <stdexcept>

#include "plan/edited.h"
#include "plan/wish.h"
#include "support/sanitizer.h"
#include "support/words.h"
#include "tenon/engine/model_runner.h"
#include "tenon/modules/embedding.h"
#include "tenon/numeric/decode.h"

namespace tenon {
namespace {

using test::EditedModel;
using test::ExpectWords;

// What the constructor of ProbeModel does beyond declaring itself.
enum class Deed { kNothing, kReadsWeight, kThrows };

struct ProbeConfig : ModelConfig {
  ProbeConfig(ConfigReader& reader, Container /*container*/) {
    ReadIdentity(reader, *this);
    ReadSizes(reader, *this);
    heads = kv_heads = head_dim = {PerLayer<int64_t>(1), {}};
    ReadMaxPosition(reader, *this, {"max_position_embeddings", 64});
    ReadTokens(reader, *this);
    reader.Ignore({"*"});
  }
};

// An embedding and a head: logits of the tokens themselves.
template <Deed kDeed>
class ProbeModel final : public Model {
 public:
  using Config = ProbeConfig;
  ProbeModel(const Scope& scope, const ProbeConfig& c)
      : Model(scope),
        embedding_(scope / "model" / "embed_tokens", c.vocab.value, c.hidden.value),
        head_(scope / "lm_head", embedding_, c.tie_embeddings.value) {
    if (kDeed == Deed::kThrows) throw std::runtime_error("no licence file");
    if (kDeed != Deed::kReadsWeight) return;
    const Parameter& norm = AddParameter(scope.context(), "model.norm.weight", {c.hidden.value},
                                         Parameter::Form::kFloat32);
    sum_ = norm.floats()[0];
  }
  void CreateWeights(LoadContext& context) override {
    if (parameters_.empty()) {
      AddParameter(context, "model.norm.weight", {embedding_.table().cols},
                   Parameter::Form::kFloat32);
    }
  }
  Value Forward(tenon::Forward& pass) const override {
    return head_(pass, LogitRows(pass, embedding_(pass, pass.layout().token_ids)));
  }
  static NameTable Names(const ProbeConfig& /*config*/, Container /*container*/) { return {}; }
  float sum() const { return sum_; }

 private:
  Embedding embedding_;
  LmHead head_;
  float sum_ = 0;
};

ModelTraits ProbeTraits() {
  return {.model_type = "probe", .skippable = {"model.layers.*"}, .base_prefix = "model."};
}

// golden llama under the architecture that this library serves.
template <Deed kDeed>
std::unique_ptr<Registry> ProbeRegistry() {
  auto registry = MakeRegistry();
  const Status status =
      registry->AddExternal({"/p/probe.so", false, [](Registrar& registrar) {
                               registrar.Model<ProbeModel<kDeed>>(
                                   "ProbeForCausalLM", ModelKind::kCausalLm, ProbeTraits());
                               return Status();
                             }});
  TN_CHECK(status.ok(), status.message().c_str());
  return registry;
}

EditedModel& AsProbe(EditedModel& model) {
  return model.Set("architectures", Json::Array{Json("ProbeForCausalLM")})
      .Set("model_type", "probe");
}

Result<std::unique_ptr<PlannedModel>> PlanWith(Registry& registry, const std::string& path,
                                               const test::Wish& wish = {}) {
  TN_ASSIGN_OR_RETURN(EngineOptions options, test::OptionsFor(wish));
  return PlanModel(path, std::move(options), registry);
}

TEST(Meta, AConstructorThatComputesWithWeightsIsRefusedWithItsFix) {
  EditedModel model("llama");
  const auto registry = ProbeRegistry<Deed::kReadsWeight>();
  const auto plan = PlanWith(*registry, AsProbe(model).path());
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.code(), StatusCode::kRefused);
  ExpectWords(plan.message(),
              {"'ProbeForCausalLM' computed with weight model.norm.weight while constructing",
               "move it to Derive()", "--allow-downgrade construction.meta"});
}

TEST(Meta, WithConsentItIsBuiltOnRealStorageAndTheCostIsInTheLedger) {
  EditedModel model("llama");
  const auto registry = ProbeRegistry<Deed::kReadsWeight>();
  auto plan = PlanWith(*registry, AsProbe(model).path(), {.allowed = "construction.meta"});
  ASSERT_TRUE(plan.ok()) << plan.message();
  const auto checkpoint = test::OpenOrDie(test::DataPath("goldens/llama"));
  const TensorView stored = *checkpoint->MapTensor(*checkpoint->FindTensor("model.norm.weight"));
  float first = 0;
  DecoderOf(stored.dtype())(stored.data(), 1, &first);
  const auto& probe = static_cast<const ProbeModel<Deed::kReadsWeight>&>(*(*plan)->model);
  EXPECT_EQ(probe.sum(), first);
  int consents = 0;
  for (const Decision& decision : (*plan)->context->ledger.decisions()) {
    if (decision.field != "construction.meta") continue;
    ++consents;
    EXPECT_EQ(decision.kind, DecisionKind::kDowngraded);
    EXPECT_EQ(decision.resolved, "real storage");
  }
  EXPECT_EQ(consents, 1);
  // Widened to fp32: a copy.
  EXPECT_GT((*plan)->memory.construction, 0);
  const auto runner = ModelRunner::Load(std::move(*plan));
  ASSERT_TRUE(runner.ok()) << runner.message();
}

TEST(Meta, WithoutWeightsConsentDoesNotHelp) {
  EditedModel model("llama");
  const auto registry = ProbeRegistry<Deed::kReadsWeight>();
  const auto plan =
      PlanWith(*registry, AsProbe(model).WithoutWeights().path(), {.allowed = "construction.meta"});
  ASSERT_FALSE(plan.ok());
  ExpectWords(plan.message(), {"model.norm.weight", "there are no weights"});
}

TEST(Meta, NothingButMetaErrorRetries) {
  EditedModel model("llama");
  const auto registry = ProbeRegistry<Deed::kThrows>();
  for (const char* allowed : {"", "construction.meta"}) {
    const auto plan = PlanWith(*registry, AsProbe(model).path(), {.allowed = allowed});
    ASSERT_FALSE(plan.ok());
    EXPECT_EQ(plan.code(), StatusCode::kRefused);
    ExpectWords(plan.message(), {"'ProbeForCausalLM'", "/p/probe.so", "threw: no licence file"});
  }
}

// Every number that is not there yet throws, whatever is asked.
TEST(Meta, NoNumberOfAParameterCanBeRead) {
  const auto plan = test::PlanGolden("llama");
  ASSERT_TRUE(plan.ok());
  int parameters = 0;
  for (Module* module : (*plan)->context->modules) {
    for (const Parameter& parameter : module->parameters()) {
      ++parameters;
      EXPECT_GT(parameter.shape().elements(), 0);
      EXPECT_THROW(parameter.view(), std::logic_error) << parameter.path();
      EXPECT_THROW(parameter.floats(), std::logic_error) << parameter.path();
      EXPECT_THROW(parameter.packed(), std::logic_error) << parameter.path();
    }
  }
  EXPECT_GT(parameters, 10);
}

// --- targets

TargetEntry RefusingTarget(std::string name, std::string architecture) {
  TargetEntry entry;
  entry.name = std::move(name);
  entry.architectures = {std::move(architecture)};
  entry.fingerprint = [](const TargetQuery&) { return std::vector<Criterion>{}; };
  entry.create = [](const Scope& scope, const ModelConfig& config, NoTarget& no_target) {
    // Leaves modules, an attention key, an error and a decision behind.
    LoadContext& context = scope.context();
    { ProbeModel<Deed::kNothing> half_made(scope, static_cast<const ProbeConfig&>(config)); }
    context.attention_layers.emplace("0", nullptr);
    context.Error("left over");
    context.Record({.field = "left.over", .resolved = "x", .by = "target", .why = "y"});
    EXPECT_EQ(context.attributes.at("model.architecture"), "ProbeForCausalLM");
    no_target.why = "the head is tied";
    return std::unique_ptr<Model>();
  };
  return entry;
}

TEST(Targets, ARefusalStartsAnewFromAnEmptyTree) {
  EditedModel model("llama");
  const auto registry = ProbeRegistry<Deed::kNothing>();
  ASSERT_TRUE(registry
                  ->AddExternal({"/p/target.so", false,
                                 [](Registrar& registrar) {
                                   registrar.Target(RefusingTarget("tiny", "ProbeForCausalLM"));
                                   return Status();
                                 }})
                  .ok());
  const std::string path = AsProbe(model).path();
  const auto plan = PlanWith(*registry, path);
  ASSERT_TRUE(plan.ok()) << plan.message();
  EXPECT_EQ((*plan)->resolution.target, nullptr);
  EXPECT_TRUE((*plan)->context->attention_layers.empty());
  EXPECT_EQ((*plan)->context->modules.size(), 3u) << "the model, its embedding, its head";
  EXPECT_EQ((*plan)->context->attributes.at("model.path"), path);
  for (const Decision& decision : (*plan)->context->ledger.decisions()) {
    EXPECT_NE(decision.field, "left.over");
  }
  const ResolutionStep& last = (*plan)->resolution.trace.back();
  EXPECT_EQ(last.outcome, "built-in");
  EXPECT_EQ(last.why, "'tiny' refuses: the head is tied");
  const auto required = PlanWith(*registry, path, {.target = "require"});
  ASSERT_FALSE(required.ok());
  ExpectWords(required.message(), {"target = require", "'tiny' refuses: the head is tied"});
  EXPECT_TRUE(PlanWith(*registry, path, {.target = "off"}).ok());
}

// --- defaults of the model

ModelTraits TraitsWithDefaults() {
  ModelTraits traits = ProbeTraits();
  traits.defaults = [](const ModelConfig& config, const EngineOptions& options,
                       const MachineProfile& machine) -> std::vector<OptionDefault> {
    EXPECT_EQ(config.vocab.value, 256);
    EXPECT_GT(machine.cores, 0);
    EXPECT_FALSE(options.isa.value.empty());
    return {{"prefill-chunk", "64", "its states are large"}, {"temp", "0.6", "its authors say so"}};
  };
  return traits;
}

TEST(ModelDefaults, CountWhereNobodySetThemAndAreDecisions) {
  EditedModel model("llama");
  const std::string path = AsProbe(model).path();
  const auto registry = MakeRegistry();
  ASSERT_TRUE(registry
                  ->AddExternal({"/p/probe.so", false,
                                 [](Registrar& registrar) {
                                   registrar.Model<ProbeModel<Deed::kNothing>>(
                                       "ProbeForCausalLM", ModelKind::kCausalLm,
                                       TraitsWithDefaults());
                                   return Status();
                                 }})
                  .ok());
  const auto decisions = [](const PlannedModel& plan) {
    std::vector<std::string> texts;
    for (const Decision& d : plan.context->ledger.decisions()) {
      if (d.by == "model defaults") texts.push_back(d.field + ": " + d.resolved + ", " + d.why);
    }
    return texts;
  };
  EngineOptions unset = EngineOptionTable().Defaults();
  const auto plan = PlanModel(path, unset, *registry);
  ASSERT_TRUE(plan.ok()) << plan.message();
  EXPECT_EQ((*plan)->options.prefill_chunk.value, 64);
  EXPECT_EQ((*plan)->options.prefill_chunk.origin.kind, Origin::Kind::kModelDefault);
  EXPECT_EQ((*plan)->options.temp.value, 0.6);
  EXPECT_EQ(decisions(**plan), (std::vector<std::string>{"prefill-chunk: 64, its states are large",
                                                         "temp: 0.6, its authors say so"}));
  // Set to the very value that the engine has anyway: it is set all the same.
  const auto set = EngineOptionTable().Resolve(
      {.command_line = {{"prefill-chunk", "512"}}, .environment = {{"TENON_TEMP", "0"}}});
  ASSERT_TRUE(set.ok());
  const auto kept = PlanModel(path, *set, *registry);
  ASSERT_TRUE(kept.ok()) << kept.message();
  EXPECT_EQ((*kept)->options.prefill_chunk.value, 512);
  EXPECT_EQ((*kept)->options.temp.value, 0);
  EXPECT_EQ(decisions(**kept),
            (std::vector<std::string>{
                "prefill-chunk: 512, the model would have 64 (its states are large), but it is set "
                "by --prefill-chunk",
                "temp: 0.0, the model would have 0.6 (its authors say so), but it is set by "
                "TENON_TEMP"}));
}

// --- a model_type with keys of its own

TEST(ConfigReaders, TranslateIntoTheFamilysKeys) {
  EditedModel model("llama");
  const Json layers =
      *test::OpenOrDie(test::DataPath("goldens/llama"))->config()->Find("num_hidden_layers");
  model.Set("model_type", "othello").Unset("num_hidden_layers").Set("n_layer", layers);
  model.Unset("architectures");
  const auto registry = MakeRegistry();
  ASSERT_TRUE(
      registry
          ->AddExternal({"/p/reader.so", false,
                         [](Registrar& registrar) {
                           registrar.ConfigReader(
                               {.model_type = "othello",
                                .architecture = "LlamaForCausalLM",
                                .translate = [](const Json& config) -> Result<ConfigSource> {
                                  ConfigSource source{.json = config};
                                  const Json* n = config.Find("n_layer");
                                  if (n == nullptr) return Refused("n_layer is absent");
                                  source.json.Set("num_hidden_layers", *n);
                                  source.origins["num_hidden_layers"] = "config.json: n_layer";
                                  return source;
                                }});
                           return Status();
                         }})
          .ok());
  const auto plan = PlanWith(*registry, model.path());
  ASSERT_TRUE(plan.ok()) << plan.message();
  EXPECT_EQ((*plan)->config->layers.value, layers.as_int());
  EXPECT_EQ((*plan)->config->layers.origin.detail, "config.json: n_layer");
  EXPECT_EQ((*plan)->resolution.architecture, "LlamaForCausalLM");
  const auto without = PlanWith(*registry, model.Unset("n_layer").path());
  ASSERT_FALSE(without.ok());
  ExpectWords(without.message(), {"config reader", "n_layer is absent"});
}

// --- base models

struct BaseCase {
  std::string golden;
  std::string architecture;
};

// The golden's weights as its base model would be saved: no prefix, no head.
void CheckBase(const BaseCase& c) {
  SCOPED_TRACE(c.architecture);
  const auto source = test::OpenOrDie(test::DataPath("goldens/" + c.golden));
  std::vector<OutputTensor> tensors;
  for (const StoredTensor& tensor : source->tensors()) {
    const std::string name(tensor.name);
    if (name == "lm_head.weight") continue;
    tensors.push_back(
        OutputTensor::Of(name.substr(name.find('.') + 1), *source->MapTensor(tensor)));
  }
  test::TempDir directory;
  Json config = *source->config();
  config.Set("architectures", Json::Array{Json(c.architecture)});
  directory.Write("config.json", config.Dump());
  ASSERT_TRUE(WriteSafetensors(directory / "model.safetensors", tensors).ok());
  auto plan = test::PlanPath(directory.path());
  ASSERT_TRUE(plan.ok()) << plan.message();
  EXPECT_FALSE((*plan)->context->has_logits);
  const auto base = ModelRunner::Load(*std::move(plan));
  ASSERT_TRUE(base.ok()) << base.message();
  const auto whole = ModelRunner::Load(*test::PlanGolden(c.golden));
  ASSERT_TRUE(whole.ok());
  const std::vector<int32_t> ids = {1, 5, 9, 60};
  ASSERT_TRUE((*base)->Extend(ids, WantLogits::kAll).ok());
  ASSERT_TRUE((*whole)->Extend(ids, WantLogits::kAll).ok());
  const int64_t hidden = (*whole)->plan().config->hidden.value;
  const int64_t vocab = (*whole)->vocab();
  ASSERT_EQ((*base)->output_width(), hidden);
  ASSERT_EQ((*base)->logits().size(), static_cast<size_t>(4 * hidden));
  // The whole model's logits are its head times these.
  const TensorView head = *source->MapTensor(*source->FindTensor("lm_head.weight"));
  std::vector<float> row(static_cast<size_t>(hidden));
  for (int64_t v = 0; v < vocab; v += 17) {
    DecoderOf(head.dtype())(head.data() + v * RowBytes(head.dtype(), hidden), hidden, row.data());
    double sum = 0;
    for (int64_t i = 0; i < hidden; ++i) {
      sum += static_cast<double>(row[static_cast<size_t>(i)]) *
             static_cast<double>((*base)->logits()[static_cast<size_t>(3 * hidden + i)]);
    }
    EXPECT_NEAR(sum, (*whole)->logits()[static_cast<size_t>(3 * vocab + v)], 2e-4);
  }
}

TEST(BaseModels, GiveTheFinalHiddenStates) {
  CheckBase({"llama", "LlamaModel"});
  CheckBase({"mixtral", "MixtralModel"});
  CheckBase({"deepseek_v2_lite", "DeepseekV2Model"});
  CheckBase({"deepseek_v3", "DeepseekV3Model"});
  CheckBase({"mamba2", "Mamba2Model"});
}

TEST(BaseModels, WithAHeadInTheFileAreWhole) {
  EditedModel model("llama");
  const auto plan =
      test::PlanPath(model.Set("architectures", Json::Array{Json("LlamaModel")}).path());
  ASSERT_TRUE(plan.ok()) << plan.message();
  EXPECT_TRUE((*plan)->context->has_logits);
  EXPECT_TRUE((*plan)->resolution.headless);
}

// --- large configs

struct Cost {
  double seconds = 0;
  int64_t peak_kib = 0;  // beyond what this process had used before
};
Cost CostOfPlanning(const std::string& config) {
  test::TempDir directory;
  directory.Write("config.json", config);
  rusage before{};
  getrusage(RUSAGE_SELF, &before);
  const auto start = std::chrono::steady_clock::now();
  const auto plan = test::PlanPath(
      directory.path(), {.compute = "auto", .max_seq_len = 4096, .memory_bytes = int64_t{1} << 42});
  Cost cost;
  cost.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  EXPECT_TRUE(plan.ok()) << plan.message();
  rusage after{};
  getrusage(RUSAGE_SELF, &after);
  cost.peak_kib = after.ru_maxrss - before.ru_maxrss;
  return cost;
}

constexpr const char* kLlama70B = R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
 "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80,
 "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 128256,
 "max_position_embeddings": 131072, "rms_norm_eps": 1e-05, "rope_theta": 500000.0,
 "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
 "original_max_position_embeddings": 8192, "rope_type": "llama3"}, "hidden_act": "silu",
 "torch_dtype": "bfloat16", "tie_word_embeddings": false})";
constexpr const char* kDeepseekV3 = R"({"architectures": ["DeepseekV3ForCausalLM"],
 "model_type": "deepseek_v3", "vocab_size": 129280, "hidden_size": 7168,
 "intermediate_size": 18432, "moe_intermediate_size": 2048, "num_hidden_layers": 61,
 "num_attention_heads": 128, "n_shared_experts": 1, "n_routed_experts": 256, "kv_lora_rank": 512,
 "q_lora_rank": 1536, "qk_rope_head_dim": 64, "v_head_dim": 128, "qk_nope_head_dim": 128,
 "n_group": 8, "topk_group": 4, "num_experts_per_tok": 8, "first_k_dense_replace": 3,
 "hidden_act": "silu", "max_position_embeddings": 163840, "rms_norm_eps": 1e-06,
 "rope_theta": 10000, "rope_scaling": {"beta_fast": 32, "beta_slow": 1, "factor": 40,
 "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096, "type": "yarn"},
 "torch_dtype": "bfloat16"})";

// Closed forms of the two checkpoints' sizes in bf16; the time is printed, the memory is a limit.
TEST(LargeConfigs, ArePlannedInLittleMemory) {
  for (const char* config : {kLlama70B, kDeepseekV3}) {
    const Cost cost = CostOfPlanning(config);
    RecordProperty("seconds", std::to_string(cost.seconds));
#ifndef TN_UNDER_SANITIZER  // which keeps books of its own
    EXPECT_LT(cost.peak_kib, 50 * 1024) << config;
#endif
  }
}

TEST(LargeConfigs, HaveTheirWeightsCounted) {
  test::TempDir directory;
  directory.Write("config.json", kLlama70B);
  const auto plan = test::PlanPath(directory.path(), {.compute = "auto",
                                                      .weights = "in-place",
                                                      .max_seq_len = 4096,
                                                      .memory_bytes = int64_t{1} << 42});
  ASSERT_TRUE(plan.ok()) << plan.message();
  constexpr int64_t kLayer = 8192LL * (8192 + 1024 + 1024 + 8192) + 3LL * 8192 * 28672 + 2 * 8192;
  constexpr int64_t kAll = 80 * kLayer + 2LL * 128256 * 8192 + 8192;
  EXPECT_EQ((*plan)->memory.weights_stored, 2 * kAll);
}

}  // namespace
}  // namespace tenon
