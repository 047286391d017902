#include <gtest/gtest.h>

#include "tokenizer/golden_files.h"

namespace tenon::test {
namespace {

class TokenizerGolden : public testing::TestWithParam<GoldenSet> {
 protected:
  void SetUp() override {
    if (!GetParam().IsPresent()) {
      GTEST_SKIP() << "skipped: the shared tokenizers are not there (TENON_SHARED_DIR)";
    }
    tokenizer_ = LoadTokenizer(GetParam());
    ASSERT_NE(tokenizer_, nullptr);
    auto goldens = ReadJsonFile(GetParam().GoldenPath());
    ASSERT_TRUE(goldens.ok()) << goldens.message();
    goldens_ = *std::move(goldens);
  }

  void ExpectDecoded(const Json& golden, const std::vector<int64_t>& ids) const {
    const std::string& whole = golden.Find("decoded")->as_string();
    const Json* without = golden.Find("decoded_skip_special");
    const auto decoded = tokenizer_->Decode(ids, {.skip_special = false});
    ASSERT_TRUE(decoded.ok()) << decoded.message();
    EXPECT_EQ(*decoded, whole);
    const auto skipped = tokenizer_->Decode(ids, {.skip_special = true});
    ASSERT_TRUE(skipped.ok()) << skipped.message();
    EXPECT_EQ(*skipped, without == nullptr ? whole : without->as_string());
  }

  std::shared_ptr<const Tokenizer> tokenizer_;
  Json goldens_;
};

TEST_P(TokenizerGolden, EncodesAndDecodesEveryCase) {
  for (const Json& golden : goldens_.Find("cases")->as_array()) {
    const std::string& text = golden.Find("text")->as_string();
    SCOPED_TRACE(golden.Find("tag")->as_string() + ": " + text.substr(0, 200));
    const Json* parse_special = golden.Find("parse_special");
    const Json* pieces = golden.Find("pieces");
    EncodeOptions options;
    options.add_special_tokens = golden.Find("add_special_tokens")->as_bool();
    options.parse_special = parse_special == nullptr || parse_special->as_bool();
    options.with_pieces = pieces != nullptr;
    const auto encoding = tokenizer_->Encode(text, options);
    ASSERT_TRUE(encoding.ok()) << encoding.message();
    const std::vector<int64_t> ids(encoding->ids.begin(), encoding->ids.end());
    EXPECT_EQ(ids, ReadIds(golden, "ids"));
    if (pieces != nullptr) {
      EXPECT_EQ(encoding->pieces, ReadStrings(golden, "pieces"));
    }
    ExpectDecoded(golden, ReadIds(golden, "ids"));
  }
}

TEST_P(TokenizerGolden, DecodesRandomIds) {
  for (const Json& golden : goldens_.Find("decode")->as_array()) {
    SCOPED_TRACE(golden.Dump());
    ExpectDecoded(golden, ReadIds(golden, "ids"));
  }
}

TEST_P(TokenizerGolden, StreamsEveryCase) {
  for (const Json& golden : goldens_.Find("stream")->as_array()) {
    SCOPED_TRACE(golden.Find("text")->as_string());
    StreamDecoder stream(tokenizer_, {.skip_special = false});
    std::vector<std::string> emitted;
    for (const int64_t id : ReadIds(golden, "ids")) {
      auto text = stream.Push(id);
      ASSERT_TRUE(text.ok()) << text.message();
      emitted.push_back(*std::move(text));
    }
    const std::string rest = stream.Finish();
    std::string joined;
    for (const std::string& text : emitted) joined += text;
    EXPECT_EQ(joined + rest, golden.Find("full")->as_string());
    const bool incremental = golden.Find("incremental_utf8") != nullptr;
    EXPECT_EQ(emitted, ReadStrings(golden, incremental ? "incremental_utf8" : "emitted"));
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, TokenizerGolden,
                         testing::Values(GoldenSet{"gpt2", true}, GoldenSet{"llama3", true},
                                         GoldenSet{"llama2", true}, GoldenSet{"gemma", true}),
                         testing::PrintToStringParamName());
INSTANTIATE_TEST_SUITE_P(Shared, TokenizerGolden,
                         testing::Values(GoldenSet{"smollm2"}, GoldenSet{"llama3_1"},
                                         GoldenSet{"qwen3"}, GoldenSet{"gptoss"},
                                         GoldenSet{"deepseek_v3"}, GoldenSet{"llama2"},
                                         GoldenSet{"gemma3"}),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace tenon::test
