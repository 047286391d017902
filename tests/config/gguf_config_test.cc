#include "tenon/config/gguf_config.h"

#include <gtest/gtest.h>

#include "config/test_json.h"
#include "tenon/config/model_config.h"
#include "tenon/config/rope_parameters.h"

namespace tenon {
namespace {

using test::Contains;
using test::J;
using test::Patched;

constexpr GgufKeyRow kRows[] = {
    {"vocab_size", "{arch}.vocab_size"},
    {"vocab_size", "tokenizer.ggml.tokens.length"},
    {"hidden_size", "{arch}.embedding_length"},
    {"num_hidden_layers", "{arch}.block_count"},
    {"intermediate_size", "{arch}.feed_forward_length"},
    {"num_attention_heads", "{arch}.attention.head_count"},
    {"num_key_value_heads", "{arch}.attention.head_count_kv"},
    {"head_dim", "{arch}.attention.key_length"},
    {"partial_rotary_factor", "{arch}.rope.dimension_count", GgufPartialRotary},
    {"max_position_embeddings", "{arch}.context_length"},
    {"rope_theta", "{arch}.rope.freq_base"},
    {"rms_norm_eps", "{arch}.attention.layer_norm_rms_epsilon"},
    {"bos_token_id", "tokenizer.ggml.bos_token_id"},
    {"eos_token_id", "tokenizer.ggml.eos_token_id"},
};

const char* const kMetadata = R"({"general.architecture": "llama", "general.name": "tiny",
  "llama.context_length": 512, "llama.embedding_length": 64, "llama.block_count": 2,
  "llama.feed_forward_length": 96, "llama.attention.head_count": 4,
  "llama.attention.head_count_kv": 2, "llama.attention.layer_norm_rms_epsilon": 1e-5,
  "llama.rope.dimension_count": 8, "llama.rope.freq_base": 10000.0, "llama.odd": 1,
  "tokenizer.ggml.tokens.length": 340, "tokenizer.ggml.bos_token_id": 1,
  "tokenizer.ggml.eos_token_id": 2})";
const GgufIdentity kIdentity = {"llama", "LlamaForCausalLM", "llama"};

ConfigSource Convert(const Json& metadata) {
  Result<ConfigSource> source = ConfigFromGguf(metadata, kIdentity, kRows);
  EXPECT_TRUE(source.ok()) << source.message();
  return source.ok() ? *std::move(source) : ConfigSource{};
}

RopeParameters RopeOf(const char* patch) {
  ConfigReader reader(Convert(Patched(J(kMetadata), J(patch))));
  RopeSpec spec;
  spec.head_dim = 16;
  spec.max_position = 512;
  RopeParameters rope = ReadRope(reader, spec).value;
  EXPECT_TRUE(reader.ok()) << reader.status().message();
  return rope;
}

TEST(GgufConfig, ReadsLikeConfigJsonWithGgufNames) {
  ConfigReader reader(Convert(J(kMetadata)));
  ModelConfig config;
  ReadIdentity(reader, config);
  ReadSizes(reader, config);
  ReadAttentionGeometry(reader, config);
  ReadMaxPosition(reader, config);
  ReadRope(reader, config);
  ReadNormEps(reader, config, "rms_norm_eps", {});
  ReadTokens(reader, config);
  ASSERT_TRUE(reader.ok()) << reader.status().message();
  EXPECT_EQ(config.architectures.value, (std::vector<std::string>{"LlamaForCausalLM"}));
  EXPECT_EQ(config.model_type.value, "llama");
  EXPECT_EQ(config.vocab.value, 340);
  EXPECT_EQ(config.vocab.origin.Text(), "GGUF: tokenizer.ggml.tokens.length");
  EXPECT_EQ(config.hidden.value, 64);
  EXPECT_EQ(config.heads.origin.Text(), "GGUF: llama.attention.head_count");
  EXPECT_EQ(config.kv_heads.value[0], 2);
  EXPECT_EQ(config.head_dim.value[0], 16);
  EXPECT_EQ(config.rope.value.partial_rotary_factor, 0.5);
  EXPECT_EQ(config.norm_eps.value, 1e-5);
  EXPECT_EQ(config.eos.value, (std::vector<int64_t>{2}));
  EXPECT_EQ(reader.UnreadKeys(),
            (std::vector<std::string>{"intermediate_size", "GGUF: llama.odd"}));
}

TEST(GgufConfig, MissingKeysGoByTheirGgufNames) {
  Json metadata = J(kMetadata);
  std::erase_if(metadata.as_object(), [](const auto& member) {
    return member.first == "llama.attention.head_count" ||
           member.first == "tokenizer.ggml.tokens.length";
  });
  std::erase_if(metadata.as_object(),
                [](const auto& member) { return member.first == "llama.rope.dimension_count"; });
  ConfigReader reader(Convert(metadata));
  ModelConfig config;
  ReadSizes(reader, config);
  ReadAttentionGeometry(reader, config);
  const std::string text = reader.status().message();
  EXPECT_TRUE(Contains(text, "GGUF metadata has 2 problems")) << text;
  EXPECT_TRUE(Contains(text, "GGUF: llama.vocab_size is missing; fix: add vocab_size")) << text;
  EXPECT_TRUE(Contains(text, "GGUF: llama.attention.head_count is missing")) << text;
}

TEST(GgufConfig, ListsPerLayerAndEarlierRowsWin) {
  const ConfigSource source = Convert(Patched(
      J(kMetadata), J(R"({"llama.vocab_size": 333, "llama.attention.head_count_kv": [2, 0]})")));
  EXPECT_EQ(source.json.Find("vocab_size")->as_int(), 333);
  EXPECT_EQ(source.origins.at("vocab_size"), "GGUF: llama.vocab_size");
  EXPECT_EQ(*source.json.Find("num_key_value_heads"), J("[2, 0]"));
}

TEST(GgufConfig, RopeScalingNoneAndLinear) {
  EXPECT_EQ(RopeOf("{}").type, RopeType::kDefault);
  EXPECT_EQ(RopeOf(R"({"llama.rope.scaling.type": "none", "llama.rope.scaling.factor": 4.0})").type,
            RopeType::kDefault);
  const RopeParameters typed =
      RopeOf(R"({"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0})");
  EXPECT_EQ(typed.type, RopeType::kLinear);
  EXPECT_EQ(typed.factor, 4);
  EXPECT_EQ(RopeOf(R"({"llama.rope.scaling.factor": 4.0})"), typed);
  EXPECT_EQ(RopeOf(R"({"llama.rope.scale_linear": 4.0})"), typed);  // its first name
}

TEST(GgufConfig, RopeScalingYarn) {
  const RopeParameters yarn = RopeOf(
      R"({"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 40.0,
          "llama.rope.scaling.original_context_length": 4096, "llama.rope.scaling.finetuned": true,
          "llama.rope.scaling.yarn_log_multiplier": 0.0707, "llama.rope.scaling.yarn_beta_fast": 16.0})");
  EXPECT_EQ(yarn.type, RopeType::kYarn);
  EXPECT_EQ(yarn.factor, 40);
  EXPECT_EQ(yarn.original_max_position, 4096);
  EXPECT_NEAR(yarn.mscale_all_dim, 0.707, 1e-9);
  EXPECT_EQ(yarn.beta_fast, 16);
  EXPECT_EQ(ComputeRope(yarn, 8, 1, 512).attention_factor, 1);
  // llama.cpp multiplies, Hugging Face replaces.
  const RopeParameters scaled = RopeOf(
      R"({"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 16.0,
          "llama.rope.scaling.attn_factor": 2.0})");
  EXPECT_NEAR(*scaled.attention_factor, 2 * 1.2772588722, 1e-9);
}

TEST(GgufConfig, RopeTensors) {
  const RopeParameters longrope = RopeOf(
      R"({"llama.rope.scaling.type": "longrope", "llama.rope.scaling.attn_factor": 1.19,
          "llama.rope.scaling.original_context_length": 256,
          "rope_factors_short.weight": [1.0, 1.5, 2.0, 2.5], "rope_factors_long.weight": [1, 2, 3, 4]})");
  EXPECT_EQ(longrope.type, RopeType::kLongrope);
  EXPECT_EQ(longrope.long_factor, (std::vector<double>{1, 2, 3, 4}));
  EXPECT_EQ(longrope.attention_factor, 1.19);
  const RopeParameters llama3 = RopeOf(R"({"rope_freqs.weight": [1.0, 1.0, 4.0, 8.0]})");
  EXPECT_EQ(llama3.type, RopeType::kDefault);
  EXPECT_EQ(llama3.divisors, (std::vector<double>{1, 1, 4, 8}));
  // Without the tensors the error names them.
  ConfigReader reader(Convert(Patched(J(kMetadata), J(R"({"llama.rope.scaling.type": "longrope",
      "rope_factors_long.weight": [1, 2, 3, 4]})"))));
  RopeSpec spec;
  spec.head_dim = 16;
  spec.max_position = 512;
  ReadRope(reader, spec);
  EXPECT_TRUE(Contains(reader.status().message(), "GGUF: rope_factors_short.weight is missing"))
      << reader.status().message();
}

// For every head and count, the reader's int(head_dim * factor) gives the count back.
TEST(GgufConfig, PartialRotaryIsExact) {
  for (int64_t head_dim = 1; head_dim <= 300; ++head_dim) {
    const Json metadata(Json::Object{{"x.attention.key_length", Json(head_dim)}});
    const GgufMetadataView view = {metadata, "x"};
    for (int64_t count = 1; count <= head_dim; ++count) {
      const Result<Json> factor = GgufPartialRotary(Json(count), view);
      ASSERT_TRUE(factor.ok());
      RopeParameters rope;
      rope.partial_rotary_factor = factor->as_double();
      ASSERT_EQ(RotaryDim(rope, head_dim), count) << head_dim;
    }
  }
}

TEST(GgufConfig, HostileMetadata) {
  const auto message = [](const Json& metadata) {
    const Result<ConfigSource> source = ConfigFromGguf(metadata, kIdentity, kRows);
    EXPECT_EQ(source.code(), StatusCode::kRefused);
    return source.message();
  };
  EXPECT_TRUE(Contains(message(J("[]")), "no table of keys"));
  const Json base = J(kMetadata);
  EXPECT_TRUE(
      Contains(message(Patched(base, J(R"({"llama.rope.scaling.type": "cubic"})"))),
               "llama.rope.scaling.type = \"cubic\", must be one of none, linear, yarn, longrope"));
  EXPECT_TRUE(Contains(message(Patched(base, J(R"({"llama.rope.scaling.type": 1})"))),
                       "llama.rope.scaling.type = 1"));
  EXPECT_TRUE(
      Contains(message(Patched(
                   base, J(R"({"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 4.0,
                                                   "llama.rope.scaling.attn_factor": "2"})"))),
               "llama.rope.scaling.attn_factor is of kind string"));
  EXPECT_TRUE(Contains(message(Patched(base, J(R"({"llama.rope.scaling.type": "yarn",
                                                   "llama.rope.scaling.yarn_ext_factor": 0.5})"))),
                       "llama.rope.scaling.yarn_ext_factor = 0.5, supports 1"));
  for (const char* count : {"0", "-1", "17", "9223372036854775807", "\"8\"", "[8]", "1.5"}) {
    const Json patch = J(std::string(R"({"llama.rope.dimension_count": )") + count + "}");
    EXPECT_TRUE(Contains(message(Patched(base, patch)), "must be from 1 to the head's 16 columns"))
        << count;
  }
  EXPECT_TRUE(Contains(message(Patched(base, J(R"({"llama.attention.head_count": 0})"))),
                       "must be from 1 to the head's 0 columns"));
}

}  // namespace
}  // namespace tenon
