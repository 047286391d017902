#include "tenon/config/model_config.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <filesystem>

#include "config/test_json.h"
#include "support/paths.h"

namespace tenon {
namespace {

using test::Contains;
using test::J;
using test::Patched;

// What a family file looks like: the groups it has, then its own keys.
struct LlamaLikeConfig : ModelConfig {
  Sourced<bool> attention_bias;
  Sourced<bool> mlp_bias;

  explicit LlamaLikeConfig(ConfigReader& reader) {
    ReadIdentity(reader, *this);
    ReadSizes(reader, *this);
    ReadAttentionGeometry(reader, *this);
    ReadMaxPosition(reader, *this, {"max_position_embeddings", 2048});
    ReadRope(reader, *this, {.theta = 10000});
    ReadMlp(reader, *this);
    ReadNormEps(reader, *this, "rms_norm_eps", 1e-6);
    ReadTokens(reader, *this);
    attention_bias = reader.Bool("attention_bias", false);
    mlp_bias = reader.Bool("mlp_bias", false);
  }
};

// A family without a rope, with its own names, and kv_heads that it never states.
struct T5LikeConfig : ModelConfig {
  Sourced<int64_t> decoder_layers;
  Sourced<int64_t> buckets;

  explicit T5LikeConfig(ConfigReader& reader) {
    ReadIdentity(reader, *this);
    ReadSizes(reader, *this, {.hidden = {"d_model"}, .layers = {"num_layers"}, .tied = true});
    ReadAttentionGeometry(reader, *this,
                          {.heads = {"num_heads"}, .kv_heads = {Keys()}, .head_dim = {"d_kv"}});
    ReadNormEps(reader, *this, "layer_norm_epsilon", 1e-6);
    intermediate = reader.PerLayerInt("d_ff", layers, {});
    ReadTokens(reader, *this);
    decoder_layers = reader.Int("num_decoder_layers", layers.value);
    buckets = reader.Int("relative_attention_num_buckets", 32);
  }
};

// The golden `llama`, as downloaded checkpoints write it.
const char* const kLlama = R"({"architectures": ["LlamaForCausalLM"], "bos_token_id": 1,
  "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 64, "intermediate_size": 100,
  "max_position_embeddings": 128, "model_type": "llama", "num_attention_heads": 4,
  "num_hidden_layers": 2, "pretraining_tp": 1, "rms_norm_eps": 0.01, "rope_scaling": null,
  "rope_theta": 10000.0, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
  "transformers_version": "4.46.1", "use_cache": true, "vocab_size": 256})";

TEST(ModelConfig, LlamaInTheOldForm) {
  ConfigReader reader(J(kLlama));
  const LlamaLikeConfig config(reader);
  ASSERT_TRUE(reader.ok()) << reader.status().message();
  EXPECT_EQ(config.model_type.value, "llama");
  EXPECT_EQ(config.architectures.value, (std::vector<std::string>{"LlamaForCausalLM"}));
  EXPECT_EQ(config.stored_dtype.value, DType::kBF16);
  EXPECT_EQ(config.vocab.value, 256);
  EXPECT_EQ(config.hidden.value, 64);
  EXPECT_EQ(config.layers.value, 2);
  EXPECT_EQ(config.heads.value[1], 4);
  EXPECT_EQ(config.kv_heads.value[1], 4);
  EXPECT_EQ(config.head_dim.value[1], 16);
  EXPECT_EQ(config.intermediate.value[0], 100);
  EXPECT_EQ(config.activation.value, Activation::kSilu);
  EXPECT_EQ(config.norm_eps.value, 0.01);
  EXPECT_EQ(config.max_position.value, 128);
  EXPECT_EQ(config.rope.value, RopeParameters{});
  EXPECT_FALSE(config.tie_embeddings.value);
  EXPECT_EQ(config.bos.value, 1);
  EXPECT_EQ(config.eos.value, (std::vector<int64_t>{2}));
  EXPECT_EQ(config.pad.value, std::nullopt);
  // Nothing of it is left over.
  EXPECT_EQ(reader.UnreadKeys(), std::vector<std::string>{});
  EXPECT_EQ(config.hidden.origin.Text(), "config.json: hidden_size");
  EXPECT_EQ(config.kv_heads.origin.kind, Origin::Kind::kDerived);
  EXPECT_EQ(config.kv_heads.origin.Text(), "as many as heads (config.json: num_attention_heads)");
  EXPECT_EQ(config.head_dim.origin.Text(),
            "hidden / heads (config.json: hidden_size, config.json: num_attention_heads)");
}

TEST(ModelConfig, LlamaInTheNewForm) {
  ConfigReader reader(J(R"({"architectures": ["LlamaForCausalLM"], "attention_bias": true,
    "dtype": "float16", "eos_token_id": [2, 5], "head_dim": 24, "hidden_act": "gelu_pytorch_tanh",
    "hidden_size": 64, "intermediate_size": 100, "max_position_embeddings": 128,
    "mlp_bias": true, "model_type": "llama", "num_attention_heads": 4, "num_hidden_layers": 2,
    "num_key_value_heads": 2, "pad_token_id": -1, "rms_norm_eps": 1e-05,
    "rope_parameters": {"rope_theta": 500000.0, "rope_type": "default"}, "vocab_size": 256})"));
  const LlamaLikeConfig config(reader);
  ASSERT_TRUE(reader.ok()) << reader.status().message();
  EXPECT_EQ(config.stored_dtype.value, DType::kF16);
  EXPECT_EQ(config.kv_heads.value[0], 2);
  EXPECT_EQ(config.head_dim.value[0], 24);
  EXPECT_EQ(config.rope.value.theta, 500000);
  EXPECT_EQ(config.activation.value, Activation::kGeluTanh);
  EXPECT_EQ(config.eos.value, (std::vector<int64_t>{2, 5}));
  EXPECT_EQ(config.pad.value, std::nullopt);
  EXPECT_EQ(config.bos.value, std::nullopt);
  EXPECT_TRUE(config.attention_bias.value && config.mlp_bias.value);
  EXPECT_EQ(config.tie_embeddings.origin.Text(),
            "default, config.json: tie_word_embeddings is absent");
  EXPECT_TRUE(reader.UnreadKeys().empty());
}

TEST(ModelConfig, NestedTextConfigAndFamilyDefaults) {
  // gemma3-4b's text_config leaves most of the class's defaults out.
  ConfigReader reader(J(R"({"text_config": {"hidden_size": 2560, "num_hidden_layers": 34}})"));
  ConfigReader text = reader.Nested("text_config");
  ModelConfig config;
  ReadSizes(text, config, {.vocab = {"vocab_size", 262208}, .tied = true});
  ReadAttentionGeometry(text, config,
                        {.heads = {"num_attention_heads", 8},
                         .kv_heads = {"num_key_value_heads", 4},
                         .head_dim = {"head_dim", 256}});
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ(config.vocab.value, 262208);
  EXPECT_EQ(config.heads.value[33] * 10 + config.kv_heads.value[33], 84);
  EXPECT_EQ(config.head_dim.value[0], 256);
  EXPECT_TRUE(config.tie_embeddings.value);
  EXPECT_EQ(config.layers.origin.Text(), "config.json: text_config.num_hidden_layers");
}

TEST(ModelConfig, LayerTypesAreReadOrFollowTheDefault) {
  const auto read = [](const char* text, std::string* error) {
    ConfigReader reader(J(text));
    ModelConfig config;
    config.layers.value = 3;
    const std::vector<bool> is_sliding = ReadLayerTypes(
        reader, config, {.yes = "sliding_attention"}, [](int64_t layer) { return layer == 1; });
    *error = reader.ok() ? "" : reader.status().message();
    return is_sliding;
  };
  std::string error;
  EXPECT_EQ(read("{}", &error), (std::vector<bool>{false, true, false}));
  EXPECT_EQ(read(R"({"layer_types": null})", &error), (std::vector<bool>{false, true, false}));
  EXPECT_EQ(read(R"({"layer_types": ["sliding_attention", "full_attention",
                                     "sliding_attention"]})",
                 &error),
            (std::vector<bool>{true, false, true}));
  EXPECT_EQ(error, "");
  read(R"({"layer_types": ["full_attention"]})", &error);
  EXPECT_TRUE(Contains(error, "has 1 entries, must have one for each of 3 layers")) << error;
  read(R"({"layer_types": ["full_attention", "linear", "full_attention"]})", &error);
  EXPECT_TRUE(Contains(error, "has 'linear' for layer 1, allowed: sliding_attention, full_"))
      << error;
}

TEST(ModelConfig, TheFirstDtypeThatIsNotNullCounts) {
  for (const char* text :
       {R"({"torch_dtype": null, "dtype": "bfloat16"})",
        R"({"torch_dtype": "bfloat16", "dtype": null})",
        R"({"torch_dtype": "float32", "dtype": "bfloat16"})", R"({"dtype": "torch.bfloat16"})"}) {
    ConfigReader reader(J(text));
    ModelConfig config;
    ReadIdentity(reader, config);
    EXPECT_TRUE(reader.ok()) << reader.status().message();
    EXPECT_EQ(config.stored_dtype.value, DType::kBF16) << text;
  }
}

TEST(ModelConfig, AnotherFamilysNames) {
  ConfigReader reader(J(R"({"architectures": ["T5ForConditionalGeneration"], "bos_token_id": 1,
    "d_ff": 80, "d_kv": 20, "d_model": 48, "decoder_start_token_id": 0, "dropout_rate": 0.1,
    "eos_token_id": 1, "feed_forward_proj": "relu", "is_encoder_decoder": true,
    "layer_norm_epsilon": 0.01, "model_type": "t5", "num_heads": 3, "num_layers": 2,
    "pad_token_id": 0, "relative_attention_max_distance": 32,
    "relative_attention_num_buckets": 16, "torch_dtype": "bfloat16", "use_cache": true,
    "vocab_size": 256})"));
  const T5LikeConfig config(reader);
  ASSERT_TRUE(reader.ok()) << reader.status().message();
  EXPECT_EQ(config.heads.value[0], 3);
  EXPECT_EQ(config.kv_heads.value[0], 3);
  EXPECT_EQ(config.head_dim.value[0], 20);  // 48 / 3 is 16: the key counts
  EXPECT_EQ(config.hidden.value, 48);
  EXPECT_EQ(config.decoder_layers.value, 2);
  EXPECT_TRUE(config.tie_embeddings.value);
  EXPECT_EQ(reader.UnreadKeys(),
            (std::vector<std::string>{"decoder_start_token_id", "feed_forward_proj",
                                      "relative_attention_max_distance"}));
}

TEST(ModelConfig, GeometryPerLayer) {
  ConfigReader reader(
      Patched(J(kLlama), J(R"({"num_hidden_layers": 3, "num_attention_heads": [4, 0, 2],
                       "num_key_value_heads": [2, 0, 1], "intermediate_size": [10, 20, 30]})")));
  ModelConfig config;
  ReadSizes(reader, config);
  ReadAttentionGeometry(reader, config, {.optional = true});
  ReadMlp(reader, config, {.optional = true});
  ASSERT_TRUE(reader.ok()) << reader.status().message();
  EXPECT_EQ(config.head_dim.value, PerLayer<int64_t>::List({16, 0, 32}));
  EXPECT_EQ(config.kv_heads.value[2], 1);
  EXPECT_EQ(config.intermediate.value[1], 20);
  // One rope cannot serve two head sizes.
  ReadMaxPosition(reader, config);
  ReadRope(reader, config, {.theta = 10000});
  EXPECT_TRUE(Contains(reader.status().message(), "head_dim differs by layer"))
      << reader.status().message();
}

// A family's default is for an absent key; null asks for the number that follows from others.
TEST(ModelConfig, NullIsNotTheDefault) {
  struct Config : ModelConfig {
    explicit Config(ConfigReader& reader) {
      ReadSizes(reader, *this);
      ReadAttentionGeometry(
          reader, *this, {.kv_heads = {"num_key_value_heads", 2}, .head_dim = {"head_dim", 128}});
    }
  };
  const Json base = J(R"({"vocab_size": 8, "hidden_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4})");
  ConfigReader absent(base);
  const Config with_defaults(absent);
  EXPECT_EQ(with_defaults.kv_heads.value[0], 2);
  EXPECT_EQ(with_defaults.head_dim.value[0], 128);
  ConfigReader null(Patched(base, J(R"({"num_key_value_heads": null, "head_dim": null})")));
  const Config with_null(null);
  ASSERT_TRUE(null.ok()) << null.status().message();
  EXPECT_EQ(with_null.kv_heads.value[0], 4);
  EXPECT_EQ(with_null.head_dim.value[0], 16);
}

TEST(ModelConfig, TokensBeyondTheVocabularyAreDroppedAndNoted) {
  ConfigReader reader(
      Patched(J(kLlama), J(R"({"eos_token_id": [2, 300], "bos_token_id": 4294967297})")));
  ModelConfig config;
  ReadSizes(reader, config);
  ReadTokens(reader, config);
  EXPECT_EQ(config.eos.value, (std::vector<int64_t>{2}));
  EXPECT_TRUE(
      Contains(reader.ToJson().Dump(), "not used: token 300 is beyond the vocabulary of 256"));
  // Not even a token: an error, never a narrowed id.
  EXPECT_TRUE(Contains(reader.status().message(), "bos_token_id = 4294967297"));
}

TEST(ModelConfig, ActivationNames) {
  for (const auto& [name, activation] :
       std::vector<std::pair<const char*, Activation>>{{"silu", Activation::kSilu},
                                                       {"swish", Activation::kSilu},
                                                       {"gelu", Activation::kGelu},
                                                       {"gelu_new", Activation::kGeluTanh},
                                                       {"gelu_fast", Activation::kGeluTanh},
                                                       {"quick_gelu", Activation::kQuickGelu},
                                                       {"relu2", Activation::kRelu2},
                                                       {"linear", Activation::kNone}}) {
    ConfigReader reader(Json(Json::Object{{"hidden_act", Json(name)}}));
    EXPECT_EQ(ReadActivation(reader, "hidden_act").value, activation) << name;
  }
}

struct Hostile {
  const char* name;
  const char* patch;  // over kLlama
  const char* message;
};
class HostileConfig : public testing::TestWithParam<Hostile> {};
TEST_P(HostileConfig, IsOneClearError) {
  ConfigReader reader(Patched(J(kLlama), J(GetParam().patch)));
  const LlamaLikeConfig config(reader);
  const std::string text = reader.status().message();
  EXPECT_TRUE(Contains(text, GetParam().message)) << text;
  EXPECT_FALSE(Contains(text, "problems")) << text;
}
INSTANTIATE_TEST_SUITE_P(
    Cases, HostileConfig,
    testing::Values(
        Hostile{"WrongKind", R"({"hidden_size": "64"})", "hidden_size = \"64\" (string)"},
        Hostile{"Object", R"({"hidden_size": {"a": 1}})", "hidden_size = {1 keys} (object)"},
        Hostile{"Boolean", R"({"num_attention_heads": true})",
                "num_attention_heads = true (boolean)"},
        Hostile{"Negative", R"({"num_hidden_layers": -1})", "num_hidden_layers = -1 (integer)"},
        Hostile{"Zero", R"({"num_attention_heads": 0})", "num_attention_heads = 0 (integer)"},
        Hostile{"ZeroKv", R"({"num_key_value_heads": 0})", "num_key_value_heads = 0 (integer)"},
        Hostile{"TwoTo63", R"({"vocab_size": 9223372036854775808})",
                "must be an integer from 1 to 2147483647; set by config.json: vocab_size"},
        Hostile{"Int64Max", R"({"intermediate_size": 9223372036854775807})",
                "intermediate_size = 9223372036854775807 (integer)"},
        Hostile{"TwoTo32Plus64", R"({"hidden_size": 4294967360})",
                "hidden_size = 4294967360 (integer)"},
        Hostile{"BillionLayers", R"({"num_hidden_layers": 1000000000})",
                "num_hidden_layers = 1000000000"},
        Hostile{"Fraction", R"({"hidden_size": 64.5})", "hidden_size = 64.5 (number)"},
        Hostile{"NaN", R"({"rms_norm_eps": NaN})", "rms_norm_eps = NaN (number)"},
        Hostile{"InfiniteSize", R"({"hidden_size": Infinity})", "hidden_size = Infinity (number)"},
        Hostile{"NegativeEps", R"({"rms_norm_eps": -1e-6})", "rms_norm_eps = -1e-06"},
        Hostile{
            "Indivisible", R"({"num_attention_heads": 5})",
            "config.json: head_dim is absent, and hidden / heads = 64 / 5 is no whole number "
            "(hidden set by config.json: hidden_size, heads by config.json: num_attention_heads); "
            "fix: add head_dim to config.json"},
        Hostile{"KvDoNotDivide", R"({"num_key_value_heads": 3})",
                "kv_heads = 3, must divide heads = 4; kv_heads set by config.json: "
                "num_key_value_heads"},
        Hostile{"ProductOverflow", R"({"num_attention_heads": 1048576, "head_dim": 1048576})",
                "heads x head_dim = 1048576 x 1048576, their product must be at most 2147483647"},
        Hostile{
            "ListTooShort", R"({"num_key_value_heads": [4]})",
            "num_key_value_heads = [4] (array, it has 1), must be an integer from 1 to 1048576, or "
            "a list of 2"},
        Hostile{"NegativeInList", R"({"intermediate_size": [100, -1]})", "entry 1 is -1"},
        Hostile{"LayerWithoutHeads", R"({"num_attention_heads": [4, 0]})",
                "num_attention_heads = [4,0]: is 0 for layer 1, every layer of this model has"},
        Hostile{"LayersWithoutWidth", R"({"intermediate_size": [0, 0]})", "is 0 for layer 0"},
        Hostile{"UnknownActivation", R"({"hidden_act": "silu2"})",
                "hidden_act = \"silu2\" (string), must be one of silu"},
        Hostile{"ActivationNumber", R"({"hidden_act": 3})", "hidden_act = 3 (integer)"},
        Hostile{"UnknownDtype", R"({"torch_dtype": "int3"})",
                "torch_dtype = \"int3\": must be one of float32"},
        Hostile{"TiedText", R"({"tie_word_embeddings": "false"})",
                "tie_word_embeddings = \"false\" (string)"},
        Hostile{"EosText", R"({"eos_token_id": "</s>"})", "eos_token_id = \"</s>\" (string)"},
        Hostile{"ArchitecturesText", R"({"architectures": "LlamaForCausalLM"})",
                "architectures = \"LlamaForCausalLM\" (string)"},
        Hostile{"NoHidden", R"({"hidden_size": null})", "config.json: hidden_size is missing"},
        Hostile{"RopeArray", R"({"rope_scaling": []})",
                "rope_scaling = [] (array), must be an object"}),
    [](const auto& test_case) { return std::string(test_case.param.name); });

TEST(HostileConfigs, EmptyObjectListsWhatIsNeeded) {
  ConfigReader reader(J("{}"));
  const LlamaLikeConfig config(reader);
  std::string expected = "config.json has 6 problems:";
  const std::string text = reader.status().message();
  EXPECT_TRUE(Contains(text, expected)) << text;
  for (const char* key : {"vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads",
                          "intermediate_size", "hidden_act"}) {
    EXPECT_TRUE(Contains(text, std::string("config.json: ") + key + " is missing")) << text;
  }
}

TEST(HostileConfigs, DeepNestingIsReadWithoutHarm) {
  std::string deep;
  for (int i = 0; i < kMaxJsonDepth - 1; ++i) deep += "{\"a\":";
  deep += "1" + std::string(kMaxJsonDepth - 1, '}');
  ConfigReader reader(
      Patched(J(kLlama), Json(Json::Object{{"rope_scaling", J(deep)}, {"hidden_size", J(deep)}})));
  const LlamaLikeConfig config(reader);
  EXPECT_FALSE(reader.ok());
  EXPECT_EQ(reader.UnreadKeys(), (std::vector<std::string>{"rope_scaling.a.a"}));
}

rc::Gen<Json> AnyJson() {
  return rc::gen::element<Json>(
      Json(), Json(true), Json(0), Json(-1), Json(1), Json(2), Json(3), Json(64), Json(1 << 30),
      Json(std::numeric_limits<int64_t>::max()), Json(std::numeric_limits<int64_t>::min()),
      Json(0.5), Json(8.0), Json(1e300), Json(std::numeric_limits<double>::quiet_NaN()),
      Json(std::numeric_limits<double>::infinity()), Json(""), Json("yarn"), Json("silu"),
      Json(Json::Array{}), Json(Json::Array{Json(1), Json(2)}),
      Json(Json::Array{Json("x"), Json()}), Json(Json::Object{}),
      J(R"({"type": "yarn", "factor": 2})"), J(R"({"type": "dynamic"})"),
      J(R"({"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4})"),
      J(R"({"full_attention": null, "sliding_attention": {}})"));
}

// Whatever a config holds: an error that names something, or a config that can be used.
RC_GTEST_PROP(HostileConfigs, NeverHarmAnything, ()) {
  Json json = J(kLlama);
  std::vector<std::string> keys = {"head_dim", "rope_parameters", "num_key_value_heads",
                                   "partial_rotary_factor", "pad_token_id"};
  for (const auto& [key, value] : json.as_object()) keys.push_back(key);
  const int changes = *rc::gen::inRange(1, 6);
  for (int i = 0; i < changes; ++i) json.Set(*rc::gen::elementOf(keys), *AnyJson());
  ConfigReader reader(json);
  const LlamaLikeConfig config(reader);
  reader.ToJson();
  if (!reader.ok()) {
    RC_ASSERT(Contains(reader.status().message(), "fix: "));
    return;
  }
  for (int64_t layer = 0; layer < std::min<int64_t>(config.layers.value, 4); ++layer) {
    const int64_t heads = config.heads.value[layer];
    const int64_t kv_heads = config.kv_heads.value[layer];
    RC_ASSERT(heads * config.head_dim.value[layer] < (int64_t{1} << 31));
    if (kv_heads > 0) RC_ASSERT(heads % kv_heads == 0);
  }
  const int64_t rotary_dim = RotaryDim(config.rope.value, config.head_dim.value.Max());
  const RopeFrequencies rope =
      ComputeRope(config.rope.value, rotary_dim, 100, config.max_position.value);
  RC_ASSERT(static_cast<int64_t>(rope.inv_freq.size()) == rotary_dim / 2);
  for (const float frequency : rope.inv_freq) RC_ASSERT(std::isfinite(frequency) && frequency >= 0);
}

// Every golden of the common form: geometry against the plain formula on the raw JSON.
TEST(Goldens, CommonGeometry) {
  const std::string root = test::SharedPath("goldens");
  if (root.empty())
    GTEST_SKIP() << "TENON_SHARED_DIR is not set: the goldens' configs were not read";
  int read = 0;
  for (const auto& entry : std::filesystem::directory_iterator(root)) {
    const std::string path = entry.path().string() + "/config.json";
    if (!entry.is_directory()) continue;
    const Result<Json> json = ReadJsonFile(path);
    ASSERT_TRUE(json.ok()) << json.message();
    ConfigReader outer(*json);
    const Json* nested = json->Find("text_config");
    const Json& raw = nested != nullptr ? *nested : *json;
    const auto number = [&](const char* key) -> int64_t {
      const Json* value = raw.Find(key);
      return value != nullptr && value->is_int() ? value->as_int() : 0;
    };
    if (number("num_attention_heads") == 0 || number("hidden_size") == 0) continue;
    ++read;
    ConfigReader reader = nested != nullptr ? outer.Nested("text_config") : outer;
    ModelConfig config;
    ReadIdentity(outer, config);
    ReadSizes(reader, config);
    ReadAttentionGeometry(reader, config);
    EXPECT_TRUE(outer.ok()) << path << ": " << outer.status().message();
    EXPECT_EQ(config.hidden.value, number("hidden_size")) << path;
    EXPECT_EQ(config.heads.value[0], number("num_attention_heads")) << path;
    const int64_t heads = number("num_attention_heads");
    const int64_t kv_heads = number("num_key_value_heads");
    EXPECT_EQ(config.kv_heads.value[0], kv_heads == 0 ? heads : kv_heads) << path;
    const int64_t head_dim = number("head_dim");
    EXPECT_EQ(config.head_dim.value[0], head_dim == 0 ? number("hidden_size") / heads : head_dim)
        << path;
    EXPECT_TRUE(config.stored_dtype.value.has_value()) << path;
  }
  EXPECT_GE(read, 70);
}

}  // namespace
}  // namespace tenon
