// tokenizer.json files that are damaged, hostile or unusual.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "tenon/tokenizer/tokenizer.h"
#include "tokenizer/golden_files.h"

namespace tenon::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string TinyText() {
  auto text = ReadFile(DataPath("goldens/tokenizers_tiny/llama3/tokenizer.json"));
  EXPECT_TRUE(text.ok()) << text.message();
  return *std::move(text);
}

// A small valid file, to be changed in one place.
Json Small() {
  const auto json = ParseJson(R"({
    "version": "1.0", "truncation": null, "padding": null,
    "added_tokens": [{"id": 4, "content": "<eos>", "special": true, "normalized": false,
                      "lstrip": false, "rstrip": false, "single_word": false}],
    "normalizer": null, "pre_tokenizer": null, "post_processor": null, "decoder": null,
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "c": 3}, "merges": ["a b"]}})");
  EXPECT_TRUE(json.ok()) << json.message();
  return *json;
}

Json WithModel(std::string_view key, std::string_view value) {
  Json json = Small();
  Json model = *json.Find("model");
  model.Set(key, *ParseJson(value));
  json.Set("model", std::move(model));
  return json;
}

Json With(std::string_view key, std::string_view value) {
  Json json = Small();
  json.Set(key, *ParseJson(value));
  return json;
}

std::string DeeplyNested() {
  std::string text = R"({"normalizer":)";
  for (int i = 0; i < 300; ++i) text += R"({"type":"Sequence","normalizers":[)";
  for (int i = 0; i < 300; ++i) text += "]}";
  return text + R"(,"model":)" + Small().Find("model")->Dump() + "}";
}

std::shared_ptr<const Tokenizer> Load(const Json& json) {
  const auto tokenizer = Tokenizer::FromJson(json.Dump());
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.message();
  return tokenizer.ok() ? *tokenizer : nullptr;
}

struct Refusal {
  std::string name;
  std::string json;
  std::string message;
};
class TokenizerJsonRefusal : public testing::TestWithParam<Refusal> {};

TEST_P(TokenizerJsonRefusal, SaysWhatIsWrong) {
  const auto tokenizer = Tokenizer::FromJson(GetParam().json);
  ASSERT_FALSE(tokenizer.ok());
  EXPECT_EQ(tokenizer.code(), StatusCode::kRefused);
  EXPECT_THAT(tokenizer.message(), HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    File, TokenizerJsonRefusal,
    testing::Values(
        Refusal{"Empty", "", "not JSON"}, Refusal{"Array", "[1]", "top level must be an object"},
        Refusal{"NoModel", R"({"version": "1.0"})", "\"model\" is absent"},
        Refusal{"Trailing", Small().Dump() + " {}", ""},
        Refusal{"Lfs", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
                "fix: git lfs pull"},
        Refusal{"Utf8", "{\"model\": \"\xC3\"}", ""},
        Refusal{"AddedTokensKind", With("added_tokens", "{}").Dump(), "added_tokens"},
        Refusal{"AddedTokenId", With("added_tokens", R"([{"content": "x", "id": "4"}])").Dump(),
                "added_tokens[0].id"},
        Refusal{"AddedTokenHugeId",
                With("added_tokens", R"([{"content": "x", "id": 4294967296}])").Dump(),
                "added_tokens[0].id = 4294967296, allowed 0..16777215"},
        Refusal{"AddedTokenNoId", With("added_tokens", R"([{"content": "x"}])").Dump(),
                "added_tokens[0].id = -1"},
        Refusal{"AddedTokenFlag",
                With("added_tokens", R"([{"content": "x", "id": 4, "special": 1}])").Dump(),
                "added_tokens[0].special"}),
    [](const auto& test) { return test.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Model, TokenizerJsonRefusal,
    testing::Values(
        Refusal{"Type", WithModel("type", R"("Unigram")").Dump(),
                "model.type = 'Unigram' is not supported, supported: BPE"},
        Refusal{"VocabKind", WithModel("vocab", "[1]").Dump(), "model.vocab"},
        Refusal{"IdKind", WithModel("vocab", R"({"a": "0"})").Dump(), "the id of 'a'"},
        Refusal{"IdFloat", WithModel("vocab", R"({"a": 0.5})").Dump(), "the id of 'a'"},
        Refusal{"NegativeId", WithModel("vocab", R"({"a": -1})").Dump(), "token 'a' has id -1"},
        Refusal{"HugeId", WithModel("vocab", R"({"a": 99999999})").Dump(),
                "id 99999999, allowed 0..16777215"},
        Refusal{"IdOf64Bits", WithModel("vocab", R"({"a": 4294967296})").Dump(), "id 4294967296"},
        Refusal{"DuplicateId", WithModel("vocab", R"({"a": 0, "b": 0})").Dump(),
                "tokens 'a' and 'b' both have id 0"},
        Refusal{"VocabTwice", R"({"model": {"vocab": {"a": 0}, "vocab": {"b": 1}, "merges": []}})",
                "model.vocab occurs twice"},
        Refusal{"MergesTwice", R"({"model": {"vocab": {"a": 0}, "merges": [], "merges": []}})",
                "model.merges occurs twice"},
        Refusal{"MergePart", WithModel("merges", R"([["a", "x"]])").Dump(),
                "model.merges[0] names 'x'"},
        Refusal{"MergeResult", WithModel("merges", R"(["b a"])").Dump(), "gives 'ba'"},
        Refusal{"MergeOne", WithModel("merges", R"(["ab"])").Dump(), "'ab' is not two tokens"},
        Refusal{"MergeThree", WithModel("merges", R"(["a b c"])").Dump(), "is not two tokens"},
        Refusal{"MergePairOfThree", WithModel("merges", R"([["a", "b", "c"]])").Dump(),
                "has 3 tokens, expected 2"},
        Refusal{"MergeKind", WithModel("merges", "[7]").Dump(), "model.merges"},
        Refusal{"NoMerges", WithModel("merges", "null").Dump(), "model.merges"},
        Refusal{"UnkToken", WithModel("unk_token", R"("<unk>")").Dump(),
                "unk_token = '<unk>' is not in the vocabulary"},
        Refusal{"UnkKind", WithModel("unk_token", "7").Dump(), "model.unk_token = 7"},
        Refusal{"Dropout", WithModel("dropout", "0.1").Dump(), "model.dropout = 0.1"},
        Refusal{"FlagKind", WithModel("byte_fallback", R"("yes")").Dump(),
                R"(model.byte_fallback = "yes": expected true or false, found string)"}),
    [](const auto& test) { return test.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Component, TokenizerJsonRefusal,
    testing::Values(
        Refusal{"Kind", With("normalizer", "3").Dump(), "normalizer is a JSON integer"},
        Refusal{"NoType", With("decoder", "{}").Dump(), "decoder.type = absent"},
        Refusal{"Unknown", With("pre_tokenizer", R"({"type": "UnicodeScripts"})").Dump(),
                "pre_tokenizer.type = 'UnicodeScripts' is not supported, supported: Sequence, "},
        Refusal{"UnknownNested",
                With("normalizer", R"({"type": "Sequence", "normalizers": [{"type": "NFC"},
                                       {"type": "Precompiled"}]})")
                    .Dump(),
                "normalizer.normalizers[1].type = 'Precompiled' is not supported, supported: "},
        Refusal{"Behavior",
                With("pre_tokenizer", R"({"type": "Split", "pattern": {"String": "x"},
                                          "behavior": "Deleted"})")
                    .Dump(),
                R"(pre_tokenizer.behavior = "Deleted": allowed: Removed, Isolated,)"},
        Refusal{"EmptyPattern",
                With("pre_tokenizer", R"({"type": "Split", "pattern": {"String": ""},
                                          "behavior": "Removed"})")
                    .Dump(),
                "pre_tokenizer.pattern"},
        Refusal{"Regex",
                With("pre_tokenizer", R"({"type": "Split", "pattern": {"Regex": "(a"},
                                          "behavior": "Removed"})")
                    .Dump(),
                "pre_tokenizer.pattern: regex '(a' is not supported: "},
        Refusal{"RegexProperty",
                With("normalizer", R"({"type": "Replace", "pattern": {"Regex": "\\p{Klingon}"},
                                       "content": ""})")
                    .Dump(),
                "Klingon"},
        Refusal{"Template",
                With("post_processor", R"({"type": "TemplateProcessing", "single": [],
                                           "special_tokens": {}})")
                    .Dump(),
                "the text must occur exactly once"},
        Refusal{"TemplateId",
                With("post_processor",
                     R"({"type": "TemplateProcessing",
                         "single": [{"SpecialToken": {"id": "x"}}, {"Sequence": {"id": "A"}}],
                         "special_tokens": {"x": {"id": "x", "ids": [5], "tokens": ["x"]}}})")
                    .Dump(),
                "token id 5 is outside 0..4"},
        Refusal{"TooDeep", DeeplyNested(), "normalizer"}),
    [](const auto& test) { return test.param.name; });

TEST(TokenizerJson, SmallFileWorks) {
  const auto tokenizer = Load(Small());
  ASSERT_NE(tokenizer, nullptr);
  const auto encoding = tokenizer->Encode("abc<eos>");
  ASSERT_TRUE(encoding.ok()) << encoding.message();
  EXPECT_THAT(encoding->ids, ElementsAre(2, 3, 4));
  EXPECT_EQ(tokenizer->vocab_size(), 5);
  EXPECT_EQ(tokenizer->TokenId("ab"), 2);
  EXPECT_EQ(tokenizer->TokenId("<eos>"), 4);
  EXPECT_EQ(tokenizer->TokenId("x"), std::nullopt);
  EXPECT_EQ(tokenizer->TokenText(4), "<eos>");
  EXPECT_TRUE(tokenizer->IsSpecial(4));
  EXPECT_TRUE(tokenizer->notes().empty());
}

TEST(TokenizerJson, OrderOfTheSectionsDoesNotMatter) {
  Json model(Json::Object{{"merges", *ParseJson(R"([["a", "b"]])")},
                          {"vocab", *Small().Find("model")->Find("vocab")},
                          {"type", Json("BPE")}});
  const Json json(
      Json::Object{{"model", std::move(model)}, {"added_tokens", *Small().Find("added_tokens")}});
  const auto tokenizer = Load(json);
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_THAT(tokenizer->Encode("ab")->ids, ElementsAre(2));
}

TEST(TokenizerJson, TruncationAndPaddingAreIgnoredAndNoted) {
  Json json = With("truncation", R"({"max_length": 2})");
  json.Set("padding", *ParseJson(R"({"strategy": {"Fixed": 9}})"));
  const auto tokenizer = Load(json);
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_THAT(tokenizer->Encode("cccc")->ids, ElementsAre(3, 3, 3, 3));
  EXPECT_THAT(tokenizer->notes(),
              ElementsAre(HasSubstr("\"truncation\""), HasSubstr("\"padding\"")));
}

// The tokenizers library gives an added token the next free id, whatever the file says.
TEST(TokenizerJson, AddedTokenAfterAGapIsNumberedAsHuggingFaceDoes) {
  const auto tokenizer = Load(With("added_tokens", R"([{"content": "<x>", "id": 9},
                                                       {"content": "ab", "id": 3}])"));
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(tokenizer->TokenId("<x>"), 4);
  EXPECT_EQ(tokenizer->TokenId("ab"), 2);
  EXPECT_THAT(tokenizer->notes(), ElementsAre(HasSubstr("'<x>': the file says id 9, it has id 4"),
                                              HasSubstr("'ab': the file says id 3, it has id 2")));
}

TEST(TokenizerJson, DecodeChecksIdsAt64Bits) {
  const auto tokenizer = Load(Small());
  ASSERT_NE(tokenizer, nullptr);
  for (const int64_t id : {int64_t{-1}, int64_t{5}, int64_t{1} << 32, INT64_MAX, INT64_MIN}) {
    const std::vector<int64_t> ids = {0, id};
    const auto text = tokenizer->Decode(ids);
    ASSERT_FALSE(text.ok()) << id;
    EXPECT_EQ(text.code(), StatusCode::kUsage);
    EXPECT_THAT(text.message(), HasSubstr(std::to_string(id) + " is outside 0..4"));
    StreamDecoder stream(tokenizer);
    EXPECT_FALSE(stream.Push(id).ok());
    EXPECT_EQ(tokenizer->TokenText(id), "");
    EXPECT_FALSE(tokenizer->IsSpecial(id));
  }
}

TEST(TokenizerJson, IdsWithoutATokenAreLeftOut) {
  const auto tokenizer = Load(WithModel("vocab", R"({"a": 0, "b": 7, "ab": 2})"));
  ASSERT_NE(tokenizer, nullptr);
  const std::vector<int64_t> ids = {0, 1, 7};
  EXPECT_EQ(*tokenizer->Decode(ids), "a b");
}

TEST(TokenizerJson, EncodeRefusesInvalidUtf8) {
  const auto tokenizer = Load(Small());
  ASSERT_NE(tokenizer, nullptr);
  for (const std::string text : {"a\xFF", "a\xE4\xBD", "a\xED\xA0\x80", "a\xF5\x80\x80\x80"}) {
    const auto encoding = tokenizer->Encode(text);
    ASSERT_FALSE(encoding.ok());
    EXPECT_EQ(encoding.code(), StatusCode::kUsage);
    EXPECT_THAT(encoding.message(), HasSubstr("not valid UTF-8 at byte 1"));
  }
}

TEST(TokenizerJson, EveryTruncationIsAnError) {
  const std::string text = TinyText();
  const size_t end = text.find_last_of('}');
  for (size_t size = 0; size < end; size += 29) {
    EXPECT_FALSE(Tokenizer::FromJson(text.substr(0, size)).ok()) << size;
  }
  EXPECT_TRUE(Tokenizer::FromJson(text).ok());
}

TEST(TokenizerJson, DamagedBytesNeverCrash) {
  const std::string text = TinyText();
  std::mt19937 random(17);
  int loaded = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string damaged = text;
    for (int i = 0; i < 2; ++i) {
      damaged[random() % damaged.size()] = static_cast<char>(' ' + random() % 95);
    }
    const auto tokenizer = Tokenizer::FromJson(damaged);
    if (!tokenizer.ok()) continue;
    ++loaded;
    const auto encoding = (*tokenizer)->Encode("The engine reads 42 pages, <|eos|> it's\n");
    if (encoding.ok()) {
      EXPECT_TRUE((*tokenizer)->Decode(encoding->ids).ok());
    }
  }
  EXPECT_GT(loaded, 10);
}

TEST(TokenizerJson, DirectoryBringsTheNamesOfSpecialTokens) {
  const auto directory = std::filesystem::path(testing::TempDir()) / "tenon_tokenizer_directory";
  std::filesystem::create_directories(directory);
  ASSERT_TRUE(WriteFile(directory / "tokenizer.json", Small().Dump()).ok());
  ASSERT_TRUE(WriteFile(directory / "tokenizer_config.json",
                        R"({"eos_token": {"content": "<eos>"}, "bos_token": "a",
                            "unk_token": null, "pad_token": "<pad>"})")
                  .ok());
  const auto tokenizer = Tokenizer::FromDirectory(directory);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.message();
  EXPECT_EQ((*tokenizer)->special().eos, 4);
  EXPECT_EQ((*tokenizer)->special().bos, 0);
  EXPECT_EQ((*tokenizer)->special().unk, std::nullopt);
  EXPECT_EQ((*tokenizer)->special().pad, std::nullopt);
  EXPECT_THAT((*tokenizer)->notes(), ElementsAre(HasSubstr("pad_token = '<pad>'")));
  std::filesystem::remove_all(directory);
  const auto absent = Tokenizer::FromDirectory(directory);
  ASSERT_FALSE(absent.ok());
  EXPECT_THAT(absent.message(), HasSubstr("tokenizer.json"));
}

}  // namespace
}  // namespace tenon::test
