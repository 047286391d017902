#include "tenon/config/rope_parameters.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

#include "config/test_json.h"

namespace tenon {
namespace {

using test::Contains;
using test::J;

RopeSpec Spec(int64_t head_dim, int64_t max_position) {
  RopeSpec spec;
  spec.head_dim = head_dim;
  spec.max_position = max_position;
  spec.theta = 10000;
  return spec;
}

struct Computed {
  RopeParameters parameters;
  RopeFrequencies at;
};
// The rope of a config, computed for one length.
Computed Compute(std::string_view config, const RopeSpec& spec, int64_t seq_len = 1) {
  ConfigReader reader(J(config));
  Computed result;
  result.parameters = ReadRope(reader, spec).value;
  EXPECT_TRUE(reader.ok()) << reader.status().message();
  result.at = ComputeRope(result.parameters, RotaryDim(result.parameters, spec.head_dim), seq_len,
                          spec.max_position);
  return result;
}

void ExpectClose(const std::vector<float>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(got[i], want[i], 1e-6 * want[i]) << "frequency " << i;
  }
}

// reference/kernels.md §8: Llama-3.1's numbers.
TEST(RopeGolden, Llama31) {
  const Computed rope = Compute(
      R"({"rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", "factor": 8.0,
          "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192}})",
      Spec(128, 131072));
  const std::vector<float>& inv = rope.at.inv_freq;
  EXPECT_NEAR(inv[29], 2.1665708e-3, 1e-9);
  EXPECT_NEAR(inv[32], 5.2484616e-4, 2e-10);
  EXPECT_NEAR(inv[63], 3.068926e-7, 1e-13);
  const std::vector<double> ratios = {1,       .828168, .643743, .493507,
                                      .371122, .271425, .190211, .125};
  for (size_t i = 28; i <= 35; ++i) {
    EXPECT_NEAR(inv[i] / std::pow(500000.0, -2.0 * static_cast<double>(i) / 128), ratios[i - 28],
                1e-6);
  }
  EXPECT_EQ(rope.at.attention_factor, 1);
}

TEST(RopeGolden, YarnOfDeepseekV3) {
  const Computed rope = Compute(
      R"({"rope_theta": 10000, "rope_scaling": {"type": "yarn", "factor": 40, "beta_fast": 32,
          "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0,
          "original_max_position_embeddings": 4096}})",
      Spec(64, 163840));
  EXPECT_NEAR(rope.at.inv_freq[16], .0055, 1e-8);
  EXPECT_NEAR(rope.at.inv_freq[20], 7.9056942e-4, 1e-10);
  EXPECT_NEAR(rope.at.inv_freq[31], 3.3338036e-6, 1e-12);
  EXPECT_EQ(rope.at.attention_factor, 1);  // m(1) / m(1)
}

TEST(RopeGolden, YarnOfGptOssKeepsTheFractions) {
  const Computed rope = Compute(
      R"({"rope_theta": 150000, "rope_scaling": {"rope_type": "yarn", "factor": 32.0,
          "beta_fast": 32.0, "beta_slow": 1.0, "truncate": false,
          "original_max_position_embeddings": 4096}})",
      Spec(64, 131072));
  EXPECT_NEAR(rope.at.inv_freq[8], .050813275, 1e-7);
  EXPECT_NEAR(rope.at.inv_freq[10], .019335001, 4e-8);
  EXPECT_NEAR(rope.at.inv_freq[16], 4.5648392e-4, 1e-9);
  EXPECT_NEAR(rope.at.inv_freq[31], 3.0235114e-7, 1e-12);
  EXPECT_NEAR(rope.at.attention_factor, 1.3465735903, 1e-6);
}

TEST(RopeGolden, YarnOfQwenAndDeepseekV4) {
  const Computed qwen = Compute(
      R"({"rope_theta": 1000000.0, "rope_scaling": {"type": "yarn", "factor": 4.0,
          "original_max_position_embeddings": 32768}})",
      Spec(128, 131072));
  EXPECT_NEAR(qwen.at.inv_freq[24], 5.3753215e-3, 1e-8);
  const Computed v4 = Compute(
      R"({"rope_theta": 160000, "rope_scaling": {"type": "yarn", "factor": 16,
          "original_max_position_embeddings": 65536}})",
      Spec(64, 1048576));
  EXPECT_NEAR(v4.at.inv_freq[16], 2.265625e-3, 1e-9);
  EXPECT_NEAR(v4.at.inv_freq[20], 2.9697778e-4, 1e-10);
}

TEST(RopeGolden, Mscale) {
  EXPECT_NEAR(YarnMscale(40, 1), 1.3688879454, 1e-10);
  EXPECT_NEAR(YarnMscale(40, .707), 1.2608037774, 1e-10);
  EXPECT_NEAR(YarnMscale(32, 1), 1.3465735903, 1e-10);
  EXPECT_NEAR(YarnMscale(16, 1), 1.2772588722, 1e-10);
  EXPECT_EQ(YarnMscale(1, 1), 1);
  EXPECT_EQ(YarnMscale(0.5, 1), 1);
  // The MLA softmax scales of DeepSeek V3 and V2.
  EXPECT_NEAR(std::pow(192, -0.5) * std::pow(YarnMscale(40, 1), 2), 0.1352337788, 1e-10);
  EXPECT_NEAR(std::pow(192, -0.5) * std::pow(YarnMscale(40, .707), 2), 0.1147213868, 1e-10);
}

TEST(RopeGolden, LongropeAttentionAndDynamicBase) {
  RopeParameters longrope;
  longrope.type = RopeType::kLongrope;
  longrope.original_max_position = 4096;
  longrope.short_factor = longrope.long_factor = std::vector<double>(48, 1.0);
  EXPECT_NEAR(ComputeRope(longrope, 96, 1, 131072).attention_factor, 1.1902380714, 1e-6);
  RopeParameters dynamic;
  dynamic.type = RopeType::kDynamic;
  dynamic.factor = 2;
  // theta' = 30527.73675, seen in every frequency.
  const RopeFrequencies at = ComputeRope(dynamic, 128, 8192, 4096);
  EXPECT_NEAR(at.inv_freq[1], std::pow(30527.73675, -2.0 / 128), 1e-7);
  EXPECT_NEAR(at.inv_freq[63], std::pow(30527.73675, -126.0 / 128), 1e-10);
}

// What Hugging Face's functions return for the goldens' configs (transformers 5.24, run on fp32).
struct ReferenceCase {
  const char* name;
  const char* config;
  int64_t head_dim;
  int64_t max_position;
  int64_t seq_len;
  double attention_factor;
  std::vector<double> inv_freq;
};

constexpr const char* kLongrope =
    R"({"rope_theta": 10000.0, "original_max_position_embeddings": 16, "rope_scaling": {
          "type": "longrope", "short_factor": [1.0, 1.02, 1.1, 1.3, 1.5, 1.7, 2.0, 2.2],
          "long_factor": [1.1, 1.4, 2.0, 3.0, 4.5, 7.0, 9.0, 12.0]}})";
constexpr const char* kDynamic =
    R"({"rope_theta": 10000.0, "rope_scaling": {"type": "dynamic", "factor": 2.0}})";
const std::vector<ReferenceCase> kReferenceCases = {
    {"linear",
     R"({"rope_theta": 10000.0, "rope_scaling": {"type": "linear", "factor": 4.0}})",
     16,
     128,
     1,
     1.0,
     {0.25, 0.079056941, 0.025, 0.0079056947, 0.0024999999, 0.00079056947, 0.00025000001,
      7.9056947e-05}},
    {"dynamic_long",
     kDynamic,
     16,
     16,
     40,
     1.0,
     {1, 0.25941283, 0.067295007, 0.017457189, 0.0045286184, 0.0011747816, 0.0003047534,
      7.9056947e-05}},
    {"dynamic_short",
     kDynamic,
     16,
     16,
     9,
     1.0,
     {1, 0.31622776, 0.1, 0.031622779, 0.0099999998, 0.0031622779, 0.001, 0.00031622779}},
    {"dynamic_internlm3",
     R"({"rope_theta": 50000000.0, "rope_scaling": {"rope_type": "dynamic", "factor": 6.0}})",
     24,
     128,
     150,
     1.0,
     {1, 0.21401325, 0.045801669, 0.0098021654, 0.0020977929, 0.00044895569, 9.6082455e-05,
      2.0562924e-05, 4.4007352e-06, 9.4181615e-07, 2.0156121e-07, 4.3136737e-08}},
    {"yarn_llama",
     R"({"rope_theta": 100.0, "rope_scaling": {"rope_type": "yarn", "factor": 4.0,
           "original_max_position_embeddings": 64, "beta_fast": 4.0, "beta_slow": 1.0}})",
     16,
     128,
     1,
     1.138629436111989,
     {1, 0.56234133, 0.25693506, 0.11114246, 0.043750003, 0.014058532, 0.0079056947, 0.0044456986}},
    {"yarn_deepseek_v2",
     R"({"rope_theta": 60.0, "rope_scaling": {"type": "yarn", "factor": 8, "beta_fast": 4,
           "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 0.5,
           "original_max_position_embeddings": 64}})",
     12,
     128,
     1,
     1.094179988101349,
     {1, 0.50540721, 0.18093415, 0.053791434, 0.0081559736, 0.0041220887}},
    {"yarn_arcee_mscale_alone_counts_nothing",
     R"({"rope_theta": 200.0, "rope_scaling": {"rope_type": "yarn", "factor": 8.0,
           "original_max_position_embeddings": 64, "beta_fast": 3.0, "beta_slow": 1.0,
           "mscale": 2.0}})",
     16,
     128,
     1,
     1.2079441541679836,
     {1, 0.51566929, 0.18835631, 0.057135031, 0.0088388352, 0.0045579155, 0.0023503769,
      0.0012120171}},
    {"yarn_gpt_oss",
     R"({"rope_theta": 200.0, "rope_scaling": {"rope_type": "yarn", "factor": 4.0,
           "original_max_position_embeddings": 64, "beta_fast": 4.0, "beta_slow": 1.0,
           "truncate": false}})",
     24,
     128,
     1,
     1.138629436111989,
     {1, 0.64305407, 0.41351858, 0.20982738, 0.094084054, 0.03423477, 0.01767767, 0.011367699,
      0.007310044, 0.0047007538, 0.0030228395, 0.0019438488}},
    {"yarn_kimi_equal_betas",
     R"({"rope_theta": 50000.0, "rope_scaling": {"type": "yarn", "factor": 32.0,
           "original_max_position_embeddings": 32, "beta_fast": 1.0, "beta_slow": 1.0,
           "mscale": 1.0, "mscale_all_dim": 1.0}})",
     8,
     1024,
     1,
     1.0,
     {1, 0.0020898134, 0.00013975425, 9.3459303e-06}},
    {"yarn_factor_from_lengths",
     R"({"rope_theta": 100.0, "rope_scaling": {"rope_type": "yarn", "factor": null,
           "original_max_position_embeddings": 64}})",
     16,
     256,
     1,
     1.138629436111989,
     {1, 0.47799012, 0.22135943, 0.097805366, 0.039999999, 0.014058532, 0.0079056947,
      0.0044456986}},
    {"yarn_olmo3_attention_factor",
     R"({"rope_theta": 150, "rope_scaling": {"rope_type": "yarn", "factor": 8.0,
           "original_max_position_embeddings": 64, "beta_fast": 4, "beta_slow": 1,
           "attention_factor": 1.2}})",
     16,
     128,
     1,
     1.2,
     {1, 0.53455031, 0.20240201, 0.063643575, 0.010206207, 0.0054557314, 0.0029163628,
      0.0015589427}},
    {"llama3",
     R"({"rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", "factor": 8.0,
           "low_freq_factor": 1.0, "high_freq_factor": 4.0,
           "original_max_position_embeddings": 64}})",
     24,
     512,
     1,
     1.0,
     {1, 0.27763274, 0.01872319, 0.0047007538, 0.001574901, 0.00052764185, 0.00017677668,
      5.92258e-05, 1.9842508e-05, 6.6478706e-06, 2.2272473e-06, 7.46198e-07}},
    {"longrope_short",
     kLongrope,
     16,
     64,
     16,
     1.224744871391589,
     {1, 0.31002721, 0.090909094, 0.024325214, 0.0066666668, 0.0018601633, 0.00050000002,
      0.00014373989}},
    {"longrope_long",
     kLongrope,
     16,
     64,
     17,
     1.224744871391589,
     {0.90909088, 0.22587697, 0.050000001, 0.010540925, 0.0022222223, 0.00045175396, 0.00011111111,
      2.6352314e-05}},
    {"proportional",
     R"({"rope_parameters": {"rope_type": "proportional", "rope_theta": 1000000.0, "factor": 2.0,
           "partial_rotary_factor": 0.4}})",
     16,
     64,
     1,
     1.0,
     {0.5, 0.08891397, 0.015811389, 0, 0, 0, 0, 0}},
    {"partial",
     R"({"rope_theta": 10000.0, "partial_rotary_factor": 0.4})",
     20,
     64,
     1,
     1.0,
     {1, 0.1, 0.0099999998, 0.001}},
};

class RopeReference : public testing::TestWithParam<ReferenceCase> {};

TEST_P(RopeReference, MatchesHuggingFace) {
  const ReferenceCase& want = GetParam();
  const Computed got = Compute(want.config, Spec(want.head_dim, want.max_position), want.seq_len);
  ExpectClose(got.at.inv_freq, want.inv_freq);
  EXPECT_NEAR(got.at.attention_factor, want.attention_factor, 1e-6);
}
INSTANTIATE_TEST_SUITE_P(Cases, RopeReference, testing::ValuesIn(kReferenceCases),
                         [](const auto& test_case) { return std::string(test_case.param.name); });

RopeParameters Read(std::string_view config, const RopeSpec& spec) {
  return Compute(config, spec).parameters;
}

TEST(RopeForms, OldAndNewFormAreOne) {
  const RopeParameters old_form = Read(
      R"({"rope_theta": 5000.0, "partial_rotary_factor": 0.5,
          "rope_scaling": {"type": "linear", "factor": 4}})",
      Spec(32, 128));
  const RopeParameters new_form = Read(
      R"({"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 5000.0,
          "partial_rotary_factor": 0.5}})",
      Spec(32, 128));
  EXPECT_EQ(old_form, new_form);
  EXPECT_EQ(old_form.type, RopeType::kLinear);
  EXPECT_EQ(old_form.theta, 5000);
  EXPECT_EQ(RotaryDim(old_form, 32), 16);
}

TEST(RopeForms, NamesAndDefaults) {
  EXPECT_EQ(Read("{}", Spec(16, 8)), RopeParameters{});
  EXPECT_EQ(Read(R"({"rope_scaling": null})", Spec(16, 8)), RopeParameters{});
  EXPECT_EQ(
      Read(R"({"rope_scaling": {}, "rope_parameters": {"rope_theta": 7.0}})", Spec(16, 8)).theta,
      7);
  RopeSpec neox = Spec(16, 8);
  neox.theta_keys = {"rope_theta", "rotary_emb_base"};
  neox.partial_keys = {"partial_rotary_factor", "rotary_pct"};
  const RopeParameters rope = Read(R"({"rotary_emb_base": 5000, "rotary_pct": 0.25})", neox);
  EXPECT_EQ(rope.theta, 5000);
  EXPECT_EQ(rope.partial_rotary_factor, 0.25);
  neox.theta = 500000;
  EXPECT_EQ(Read("{}", neox).theta, 500000);
  EXPECT_EQ(Read(R"({"rope_scaling": {"type": "su", "short_factor": [1], "long_factor": [2]}})",
                 Spec(2, 8))
                .type,
            RopeType::kLongrope);
}

// Files of several years carry both spellings of the type.
TEST(RopeForms, BothSpellingsOfTheTypeMustAgree) {
  EXPECT_EQ(Read(R"({"rope_scaling": {"type": "linear", "rope_type": "linear", "factor": 4}})",
                 Spec(16, 8))
                .type,
            RopeType::kLinear);
  EXPECT_EQ(
      Read(R"({"rope_scaling": {"type": "mrope", "rope_type": "default"}})", Spec(16, 8)).type,
      RopeType::kDefault)
      << "two words for one thing";
  for (const char* config :
       {R"({"rope_scaling": {"type": "linear", "rope_type": "yarn", "factor": 4}})",
        R"({"rope_parameters": {"type": "yarn", "rope_type": "default"}})"}) {
    ConfigReader reader(J(config));
    ReadRope(reader, Spec(16, 8));
    EXPECT_TRUE(Contains(reader.status().message(), "must be the same")) << config;
    EXPECT_FALSE(Contains(reader.status().message(), "problems")) << reader.status().message();
  }
}

// A wrong base gives fluent nonsense: a family that states none needs the key.
TEST(RopeForms, ThetaIsRequiredWithoutADefault) {
  RopeSpec spec = Spec(16, 8);
  spec.theta.reset();
  ConfigReader reader(J("{}"));
  ReadRope(reader, spec);
  EXPECT_TRUE(Contains(reader.status().message(), "config.json: rope_theta is missing; fix: add"))
      << reader.status().message();
  EXPECT_EQ(Read(R"({"rope_theta": 7.0})", spec).theta, 7);
  EXPECT_EQ(Read(R"({"rope_parameters": {"rope_theta": 7.0}})", spec).theta, 7);
}

TEST(RopeForms, TheDictionarysThetaWinsAndTheOtherIsNoted) {
  ConfigReader reader(J(
      R"({"rope_theta": 10000.0, "rope_parameters": {"rope_theta": 1000000, "rope_type": "default"}})"));
  const Sourced<RopeParameters> rope = ReadRope(reader, Spec(8, 64));
  EXPECT_EQ(rope.value.theta, 1000000);
  EXPECT_EQ(rope.origin.Text(), "config.json: rope_parameters");
  EXPECT_TRUE(reader.UnreadKeys().empty());
  EXPECT_TRUE(
      Contains(reader.ToJson().Dump(), "not used: config.json: rope_parameters.rope_theta counts"));
}

TEST(RopeForms, OriginalLengthOutsideTheDictionaryWins) {
  const char* const config = R"({"original_max_position_embeddings": 32, "rope_scaling": {
      "type": "yarn", "factor": 2, "original_max_position_embeddings": 64}})";
  EXPECT_EQ(Read(config, Spec(16, 128)).original_max_position, 32);
  EXPECT_EQ(Read(R"({"rope_scaling": {"type": "yarn", "factor": 2}})", Spec(16, 128))
                .original_max_position,
            128);
}

TEST(RopeForms, Mrope) {
  const RopeParameters rope = Read(
      R"({"rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}})", Spec(128, 32768));
  EXPECT_EQ(rope.type, RopeType::kDefault);
  EXPECT_EQ(rope.mrope_section, (std::vector<int64_t>{16, 24, 24}));
  EXPECT_FALSE(rope.mrope_interleaved);
}

TEST(RopeForms, PerLayerType) {
  const char* const config = R"({"rope_parameters": {
      "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
      "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
      "chunked_attention": null}})";
  RopeSpec spec = Spec(16, 128);
  spec.layer_types = {"full_attention", "sliding_attention", "chunked_attention"};
  ConfigReader reader(J(config));
  EXPECT_TRUE(HasRopePerLayerType(reader, spec));
  const auto full = ReadRopeOf(reader, spec, "full_attention");
  EXPECT_EQ(full.value->type, RopeType::kLinear);
  EXPECT_EQ(full.value->theta, 1000000);
  EXPECT_EQ(full.origin.Text(), "config.json: rope_parameters.full_attention");
  EXPECT_EQ(ReadRopeOf(reader, spec, "sliding_attention").value->theta, 10000);
  EXPECT_EQ(ReadRopeOf(reader, spec, "chunked_attention").value, std::nullopt);  // does not rotate
  EXPECT_TRUE(reader.ok());
  EXPECT_TRUE(reader.UnreadKeys().empty());
  ReadRopeOf(reader, spec, "linear_attention");
  EXPECT_TRUE(Contains(reader.status().message(),
                       "has no entry for linear_attention layers, there is "
                       "full_attention, sliding_attention, chunked_attention"));
  ConfigReader uniform(J(config));
  ReadRope(uniform, spec);
  EXPECT_TRUE(Contains(uniform.status().message(), "all layers of this model rotate alike"));
  // One entry only is as good as a flat dictionary; a flat one serves every type.
  EXPECT_EQ(Read(R"({"rope_parameters": {"full_attention": {"rope_theta": 5.0}}})", spec).theta, 5);
  ConfigReader flat(J(R"({"rope_theta": 7.0})"));
  EXPECT_FALSE(HasRopePerLayerType(flat, spec));
  EXPECT_EQ(ReadRopeOf(flat, spec, "sliding_attention").value->theta, 7);
}

TEST(RopeForms, TruncateIsReadBesideTheLayerTypes) {
  const char* const config = R"({"rope_parameters": {"truncate": %s,
      "full_attention": {"rope_type": "yarn", "factor": 4, "truncate": false}}})";
  for (const bool outer : {true, false}) {
    std::string text = config;
    text.replace(text.find("%s"), 2, outer ? "true" : "false");
    EXPECT_EQ(Read(text, Spec(16, 128)).truncate, outer);
  }
}

TEST(RopeForms, DivisorsOfAGgufTensor) {
  const Computed rope =
      Compute(R"({"rope_scaling": {"frequency_divisors": [1.0, 8.0]}})", Spec(4, 64));
  ExpectClose(rope.at.inv_freq, {1, 0.01 / 8});
}

struct Hostile {
  const char* name;
  const char* config;
  const char* message;
};
class RopeHostile : public testing::TestWithParam<Hostile> {};
TEST_P(RopeHostile, IsOneClearError) {
  ConfigReader reader(J(GetParam().config));
  RopeSpec spec = Spec(16, 128);
  ReadRope(reader, spec);
  const std::string text = reader.status().message();
  EXPECT_TRUE(Contains(text, GetParam().message)) << text;
  EXPECT_FALSE(Contains(text, "problems")) << text;
}
INSTANTIATE_TEST_SUITE_P(
    Cases, RopeHostile,
    testing::Values(
        Hostile{"UnknownType", R"({"rope_scaling": {"type": "axial", "factor": 2}})",
                "rope_scaling.type = \"axial\" (string), must be one of default, linear, dynamic, "
                "yarn, llama3, longrope, proportional"},
        Hostile{"TypeNumber", R"({"rope_scaling": {"type": 3}})",
                "rope_scaling.type = 3 (integer)"},
        Hostile{"DictNumber", R"({"rope_scaling": 2.0})",
                "rope_scaling = 2.0 (number), must be an object"},
        Hostile{"NoFactor", R"({"rope_scaling": {"type": "linear"}})",
                "rope_scaling.factor is missing"},
        Hostile{"ZeroFactor", R"({"rope_scaling": {"type": "linear", "factor": 0}})",
                "rope_scaling.factor = 0 (integer), must be a finite number above 0"},
        Hostile{"InfiniteFactor", R"({"rope_scaling": {"type": "yarn", "factor": Infinity}})",
                "must be a finite number above 0"},
        Hostile{"NaNTheta", R"({"rope_theta": NaN})", "rope_theta = NaN"},
        Hostile{"NegativeTheta", R"({"rope_theta": -1})", "rope_theta = -1"},
        Hostile{"ThetaText",
                R"({"rope_theta": "10000", "rope_scaling": {"type": "yarn", "factor": 2}})",
                "rope_theta = \"10000\" (string)"},
        Hostile{"YarnThetaOne",
                R"({"rope_theta": 1.0, "rope_scaling": {"type": "yarn", "factor": 2}})",
                "yarn needs a rope_theta other than 1"},
        Hostile{
            "Betas",
            R"({"rope_scaling": {"type": "yarn", "factor": 2, "beta_fast": 1, "beta_slow": 2}})",
            "rope_scaling.beta_fast = 1: must not be below beta_slow (2)"},
        Hostile{"Llama3Order",
                R"({"rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 4,
                    "high_freq_factor": 4}})",
                "high_freq_factor = 4: must be above low_freq_factor (4)"},
        Hostile{"LongropeLists",
                R"({"rope_scaling": {"type": "longrope", "long_factor": [1,1,1,1,1,1,1,1]}})",
                "config.json: rope_scaling.short_factor is missing"},
        Hostile{"LongropeLength",
                R"({"rope_scaling": {"type": "longrope", "short_factor": [1,1,1,1,1,1,1,1],
                    "long_factor": [1]}})",
                "rope_scaling.long_factor = [1]: it has 1 entries, needs 8"},
        Hostile{"LongropeZero",
                R"({"rope_scaling": {"type": "longrope", "short_factor": [1,1,1,1,1,1,1,1],
                    "long_factor": [1,1,1,1,1,1,1,0]}})",
                "entry 7 is 0"},
        Hostile{"Sections", R"({"rope_scaling": {"type": "mrope", "mrope_section": [4, 4, 4]}})",
                "sums to 12, must sum to 8"},
        Hostile{"PartialTooBig", R"({"partial_rotary_factor": 1.5})",
                "must be a number above 0 to 1"},
        Hostile{"OddColumns", R"({"partial_rotary_factor": 0.2})",
                "rope would rotate 3 columns of a head of 16"},
        Hostile{"OriginalHuge",
                R"({"rope_scaling": {"type": "yarn", "factor": 2,
                    "original_max_position_embeddings": 9223372036854775808}})",
                "set by config.json: rope_scaling.original_max_position_embeddings"}),
    [](const auto& test_case) { return std::string(test_case.param.name); });

RC_GTEST_PROP(RopeProperties, DefaultIsTheClosedForm, ()) {
  const int64_t dim = 2 * *rc::gen::inRange<int64_t>(1, 129);
  const double theta = *rc::gen::inRange(2, 1000000);
  RopeParameters rope;
  rope.theta = theta;
  const RopeFrequencies at = ComputeRope(rope, dim, 1, 1);
  for (int64_t i = 0; i < dim / 2; ++i) {
    const long double exact =
        std::pow(static_cast<long double>(theta),
                 -2.0L * static_cast<long double>(i) / static_cast<long double>(dim));
    RC_ASSERT(std::abs(at.inv_freq[static_cast<size_t>(i)] - exact) <= 1e-7L * exact);
  }
}

// Every scaling stays between the plain frequencies and those divided by the factor.
RC_GTEST_PROP(RopeProperties, ScalingStaysBetween, ()) {
  RopeParameters rope;
  rope.type = *rc::gen::element(RopeType::kLinear, RopeType::kYarn, RopeType::kLlama3);
  rope.theta = *rc::gen::inRange(10, 10000000);
  rope.factor = *rc::gen::inRange(1, 64);
  rope.original_max_position = *rc::gen::inRange<int64_t>(64, 32768);
  const int64_t dim = 2 * *rc::gen::inRange<int64_t>(1, 65);
  const RopeFrequencies scaled = ComputeRope(rope, dim, 1, 131072);
  RopeParameters plain;
  plain.theta = rope.theta;
  const RopeFrequencies base = ComputeRope(plain, dim, 1, 131072);
  for (size_t i = 0; i < base.inv_freq.size(); ++i) {
    RC_ASSERT(scaled.inv_freq[i] <= base.inv_freq[i] * (1 + 1e-6f));
    RC_ASSERT(scaled.inv_freq[i] >=
              base.inv_freq[i] / static_cast<float>(*rope.factor) * (1 - 1e-6f));
  }
}

}  // namespace
}  // namespace tenon
