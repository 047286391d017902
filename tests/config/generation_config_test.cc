#include "tenon/config/generation_config.h"

#include <gtest/gtest.h>

#include "config/test_json.h"

namespace tenon {
namespace {

using test::Contains;
using test::J;

std::vector<int64_t> IdsOf(const GenerationConfig& generation) {
  std::vector<int64_t> ids;
  for (const Sourced<int64_t>& token : generation.eos) ids.push_back(token.value);
  return ids;
}

TEST(GenerationConfig, ReadsItsFileAndKeepsAbsentNull) {
  const Json file = J(R"({"do_sample": true, "temperature": 0.6, "top_p": 0.9, "top_k": null,
      "repetition_penalty": 1.05, "eos_token_id": [128001, 128009], "bos_token_id": 128000,
      "pad_token_id": -1, "max_new_tokens": 2048, "stop_strings": "END", "odd": 1,
      "transformers_version": "4.46.1"})");
  const Result<GenerationConfig> read = ReadGenerationConfig({.generation = &file});
  ASSERT_TRUE(read.ok()) << read.message();
  EXPECT_EQ(read->do_sample.value, true);
  EXPECT_EQ(read->temperature.value, 0.6);
  EXPECT_EQ(read->temperature.origin,
            (Origin{Origin::Kind::kCheckpoint, "generation_config.json: temperature"}));
  EXPECT_EQ(read->top_k.value, std::nullopt);
  EXPECT_EQ(read->min_p.value, std::nullopt);
  EXPECT_EQ(read->max_new_tokens.value, 2048);
  EXPECT_EQ(read->bos.value, 128000);
  EXPECT_EQ(read->pad.value, std::nullopt);
  EXPECT_EQ(read->stop_strings.value, (std::vector<std::string>{"END"}));
  EXPECT_EQ(IdsOf(*read), (std::vector<int64_t>{128001, 128009}));
  EXPECT_EQ(read->unread, (std::vector<std::string>{"odd"}));
}

TEST(GenerationConfig, EndTokensAreTheUnionWithTheFirstNamers) {
  const Json file = J(R"({"eos_token_id": [7, 8]})");
  const Json config =
      J(R"({"eos_token_id": 8, "temperature": 0.5, "text_config": {"eos_token_id": 9}})");
  const Sourced<int64_t> more[] = {{7, {Origin::Kind::kCheckpoint, "tokenizer: eos_token"}},
                                   {10, {Origin::Kind::kCheckpoint, "tokenizer: eot"}}};
  const Result<GenerationConfig> read =
      ReadGenerationConfig({.generation = &file, .config = &config, .more_eos = more});
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(IdsOf(*read), (std::vector<int64_t>{7, 8, 9, 10}));
  EXPECT_EQ(read->eos[1].origin.Text(), "generation_config.json: eos_token_id");
  EXPECT_EQ(read->eos[2].origin.Text(), "config.json: text_config.eos_token_id");
  EXPECT_EQ(read->eos[3].origin.Text(), "tokenizer: eot");
  // With a file of its own, config.json has no say in sampling.
  EXPECT_EQ(read->temperature.value, std::nullopt);
}

TEST(GenerationConfig, OldCheckpointsKeepItInConfigJson) {
  const Json config = J(R"({"eos_token_id": 2, "do_sample": true, "temperature": 0.5, "top_k": -1,
                            "forced_eos_token_id": 2, "decoder_start_token_id": 0})");
  const Result<GenerationConfig> read = ReadGenerationConfig({.config = &config});
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->temperature.origin.Text(), "config.json: temperature");
  EXPECT_EQ(read->top_k.value, 0);
  EXPECT_EQ(read->decoder_start.value, 0);
  EXPECT_EQ(read->forced_eos.value, (std::vector<int64_t>{2}));
  EXPECT_TRUE(read->unread.empty());
}

TEST(GenerationConfig, NothingAtAll) {
  const Result<GenerationConfig> read = ReadGenerationConfig({});
  ASSERT_TRUE(read.ok());
  EXPECT_TRUE(read->eos.empty());
  EXPECT_EQ(read->do_sample.value, std::nullopt);
}

TEST(GenerationConfig, HostileValuesAreNamed) {
  for (const auto& [text, message] : std::vector<std::pair<const char*, const char*>>{
           {R"({"temperature": -0.1})",
            "temperature = -0.1 (number), must be a finite number from 0 up or null"},
           {R"({"temperature": NaN})", "temperature = NaN"},
           {R"({"top_p": 1.5})", "top_p = 1.5 (number), must be a number from 0 to 1"},
           {R"({"top_k": 9223372036854775808})",
            "must be an integer from -1 to 2147483647 or null; set by generation_config.json: "
            "top_k"},
           {R"({"eos_token_id": ["</s>"]})",
            "eos_token_id = [\"</s>\"] (array, entry 0 is \"</s>\")"},
           {R"({"eos_token_id": 4294967296})", "eos_token_id = 4294967296"},
           {R"({"do_sample": "yes"})", "do_sample = \"yes\" (string), must be true, false or null"},
           {R"([])", "generation_config.json is [] (array), must be an object"}}) {
    const Json file = J(text);
    const Result<GenerationConfig> read = ReadGenerationConfig({.generation = &file});
    EXPECT_EQ(read.code(), StatusCode::kRefused) << text;
    EXPECT_TRUE(Contains(read.message(), message)) << read.message();
    EXPECT_FALSE(Contains(read.message(), "problems")) << read.message();
  }
}

}  // namespace
}  // namespace tenon
