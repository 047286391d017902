// GGUF vocabularies: a tiny one against llama.cpp, the real ones rebuilt from tokenizer.json.
#include "tenon/tokenizer/gguf_vocabulary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>

#include "tenon/tokenizer/gguf_pre_tokenizers.h"
#include "tokenizer/golden_files.h"

namespace tenon::test {
namespace {

using testing::HasSubstr;

// A vocabulary with the strings that it views.
struct OwnedVocabulary {
  std::deque<std::string> strings;
  GgufVocabulary gguf;

  std::string_view Keep(std::string text) { return strings.emplace_back(std::move(text)); }
};

OwnedVocabulary ReadFixture(const Json& json) {
  OwnedVocabulary owned;
  GgufVocabulary& gguf = owned.gguf;
  gguf.model = json.Find("model")->as_string();
  gguf.pre = json.Find("pre")->as_string();
  for (const std::string& token : ReadStrings(json, "tokens")) {
    gguf.tokens.push_back(owned.Keep(token));
  }
  for (const std::string& merge : ReadStrings(json, "merges")) {
    gguf.merges.push_back(owned.Keep(merge));
  }
  for (const int64_t type : ReadIds(json, "token_types")) {
    gguf.token_types.push_back(static_cast<int32_t>(type));
  }
  gguf.bos_id = json.Find("bos_id")->as_int();
  gguf.eos_id = json.Find("eos_id")->as_int();
  gguf.add_bos = json.Find("add_bos")->as_bool();
  gguf.add_eos = json.Find("add_eos")->as_bool();
  return owned;
}

OwnedVocabulary Tiny() {
  const auto fixture = ReadJsonFile(DataPath("tokenizer/data/gguf_gpt2.json"));
  EXPECT_TRUE(fixture.ok()) << fixture.message();
  return ReadFixture(*fixture->Find("vocabulary"));
}

std::string FromHex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

TEST(GgufTokenizer, TinyVocabularyEqualsLlamaCpp) {
  const auto fixture = ReadJsonFile(DataPath("tokenizer/data/gguf_gpt2.json"));
  ASSERT_TRUE(fixture.ok()) << fixture.message();
  const auto tokenizer = Tokenizer::FromGguf(Tiny().gguf);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.message();
  for (const Json& golden : fixture->Find("cases")->as_array()) {
    const std::string& text = golden.Find("text")->as_string();
    SCOPED_TRACE(text);
    const auto ids = [&](bool special) {
      const auto encoding =
          (*tokenizer)->Encode(text, {.add_special_tokens = special, .parse_special = special});
      EXPECT_TRUE(encoding.ok()) << encoding.message();
      return std::vector<int64_t>(encoding->ids.begin(), encoding->ids.end());
    };
    EXPECT_EQ(ids(true), ReadIds(golden, "ids_bos_special"));
    EXPECT_EQ(ids(false), ReadIds(golden, "ids_plain"));
    const auto decoded =
        (*tokenizer)->Decode(ReadIds(golden, "ids_plain"), {.skip_special = false});
    ASSERT_TRUE(decoded.ok()) << decoded.message();
    EXPECT_EQ(*decoded, FromHex(golden.Find("decoded_utf8_hex")->as_string()));
  }
}

TEST(GgufTokenizer, SpecialTokensAreKnown) {
  const auto tokenizer = Tokenizer::FromGguf(Tiny().gguf);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.message();
  EXPECT_EQ((*tokenizer)->special().bos, 1);
  EXPECT_EQ((*tokenizer)->special().eos, 2);
  EXPECT_FALSE((*tokenizer)->special().unk.has_value());
  EXPECT_EQ((*tokenizer)->TokenId("<|im_end|>"), 4);
  EXPECT_TRUE((*tokenizer)->IsSpecial(4));
  EXPECT_FALSE((*tokenizer)->IsSpecial(5));
  EXPECT_EQ((*tokenizer)->vocab_size(), 320);
  EXPECT_THAT((*tokenizer)->tokens_before(), testing::ElementsAre(1));
}

TEST(GgufTokenizer, EveryNamedPreTokenizerCompilesAndKeepsTheText) {
  const std::string text = "It's 1234567 caf\xC3\xA9s,\r\n\n  \xE4\xBD\xA0\xE5\xA5\xBD!? x_y  ";
  for (const std::string_view name : GgufPreTokenizerNames()) {
    OwnedVocabulary owned = Tiny();
    owned.gguf.pre = name;
    const auto tokenizer = Tokenizer::FromGguf(owned.gguf);
    ASSERT_TRUE(tokenizer.ok()) << name << ": " << tokenizer.message();
    const auto encoding = (*tokenizer)->Encode(text, {.add_special_tokens = false});
    ASSERT_TRUE(encoding.ok()) << name << ": " << encoding.message();
    EXPECT_EQ(*(*tokenizer)->Decode(encoding->ids), text) << name;
  }
}

struct Refusal {
  std::string name;
  void (*spoil)(OwnedVocabulary* owned);
  std::string message;
};
class GgufRefusal : public testing::TestWithParam<Refusal> {};

TEST_P(GgufRefusal, SaysWhatIsWrong) {
  OwnedVocabulary owned = Tiny();
  GetParam().spoil(&owned);
  const auto tokenizer = Tokenizer::FromGguf(owned.gguf);
  ASSERT_FALSE(tokenizer.ok());
  EXPECT_EQ(tokenizer.code(), StatusCode::kRefused);
  EXPECT_THAT(tokenizer.message(), HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    All, GgufRefusal,
    testing::Values(
        Refusal{"Model", [](OwnedVocabulary* o) { o->gguf.model = "llama"; },
                "tokenizer.ggml.model = 'llama' is not supported yet, supported: gpt2"},
        Refusal{"Pre", [](OwnedVocabulary* o) { o->gguf.pre = "smolm"; },
                "'smolm' is not known (near: smollm"},
        Refusal{"NoTokens",
                [](OwnedVocabulary* o) {
                  o->gguf.tokens.clear();
                  o->gguf.token_types.clear();
                },
                "tokenizer.ggml.tokens is empty"},
        Refusal{"Types", [](OwnedVocabulary* o) { o->gguf.token_types.pop_back(); },
                "token_type has 319 entries, tokenizer.ggml.tokens has 320"},
        Refusal{"Scores", [](OwnedVocabulary* o) { o->gguf.scores = {1}; }, "scores has 1 entries"},
        Refusal{"Merge", [](OwnedVocabulary* o) { o->gguf.merges[7] = "ab"; }, "merges[7] = 'ab'"},
        Refusal{"EmptyMerge", [](OwnedVocabulary* o) { o->gguf.merges[0] = ""; }, "merges[0] = ''"},
        Refusal{"MergePart", [](OwnedVocabulary* o) { o->gguf.merges[7] = "nope x"; },
                "merges[7] names 'nope'"},
        Refusal{"MergeResult", [](OwnedVocabulary* o) { o->gguf.merges[7] = "! !"; },
                "merge 7 ('!' + '!') gives '!!'"},
        Refusal{"Bos", [](OwnedVocabulary* o) { o->gguf.bos_id = 320; },
                "bos_token_id = 320 is outside 0..319"},
        Refusal{"HugeEos", [](OwnedVocabulary* o) { o->gguf.eos_id = (int64_t{1} << 32) + 2; },
                "eos_token_id = 4294967298 is outside"},
        Refusal{"NoBos", [](OwnedVocabulary* o) { o->gguf.bos_id.reset(); },
                "tokenizer.ggml.bos_token_id is absent"},
        Refusal{"Utf8", [](OwnedVocabulary* o) { o->gguf.tokens[300] = "\xC3"; },
                "not valid UTF-8"}),
    [](const auto& test) { return test.param.name; });

TEST(GgufTokenizer, AbsentPreIsDefaultAndNoted) {
  OwnedVocabulary owned = Tiny();
  owned.gguf.pre.clear();
  const auto tokenizer = Tokenizer::FromGguf(owned.gguf);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.message();
  EXPECT_THAT((*tokenizer)->notes(), testing::ElementsAre(HasSubstr("'default' is meant")));
}

// What a converter to GGUF writes for a tokenizer.json.
OwnedVocabulary Convert(const Json& json, const std::string& pre) {
  OwnedVocabulary owned;
  owned.gguf.model = "gpt2";
  owned.gguf.pre = pre;
  owned.gguf.add_bos = false;
  const auto put = [&](int64_t id, const std::string& token, GgufTokenType type) {
    if (id >= static_cast<int64_t>(owned.gguf.tokens.size())) {
      owned.gguf.tokens.resize(static_cast<size_t>(id) + 1);
      owned.gguf.token_types.resize(static_cast<size_t>(id) + 1);
    }
    owned.gguf.tokens[static_cast<size_t>(id)] = owned.Keep(token);
    owned.gguf.token_types[static_cast<size_t>(id)] = static_cast<int32_t>(type);
  };
  const Json& model = *json.Find("model");
  for (const auto& [token, id] : model.Find("vocab")->as_object()) {
    put(id.as_int(), token, GgufTokenType::kNormal);
  }
  for (const Json& added : json.Find("added_tokens")->as_array()) {
    put(added.Find("id")->as_int(), added.Find("content")->as_string(),
        added.Find("special")->as_bool() ? GgufTokenType::kControl : GgufTokenType::kUserDefined);
  }
  for (const Json& merge : model.Find("merges")->as_array()) {
    owned.gguf.merges.push_back(
        owned.Keep(merge.is_string()
                       ? merge.as_string()
                       : merge.as_array()[0].as_string() + " " + merge.as_array()[1].as_string()));
  }
  return owned;
}

struct RealCase {
  std::string name;
  std::string pre;
  bool normalizes = false;
};
class GgufReal : public testing::TestWithParam<RealCase> {};

TEST_P(GgufReal, PreTokenizerEqualsTheOneOfTokenizerJson) {
  const GoldenSet set{GetParam().name};
  if (!set.IsPresent()) {
    GTEST_SKIP() << "skipped: the shared tokenizers are not there (TENON_SHARED_DIR)";
  }
  const auto json = ParseJson(ReadXz(set.TokenizerPath()));
  ASSERT_TRUE(json.ok()) << json.message();
  const auto tokenizer = Tokenizer::FromGguf(Convert(*json, GetParam().pre).gguf);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.message();
  const auto goldens = ReadJsonFile(set.GoldenPath());
  ASSERT_TRUE(goldens.ok()) << goldens.message();
  int compared = 0;
  for (const Json& golden : goldens->Find("cases")->as_array()) {
    if (golden.Find("add_special_tokens")->as_bool()) continue;
    const std::string& text = golden.Find("text")->as_string();
    const std::string& tag = golden.Find("tag")->as_string();
    // A GGUF does not say that its tokenizer normalises.
    if (GetParam().normalizes && tag != "plain" && tag != "code") continue;
    const Json* parse_special = golden.Find("parse_special");
    const auto encoding =
        (*tokenizer)
            ->Encode(text, {.parse_special = parse_special == nullptr || parse_special->as_bool()});
    ASSERT_TRUE(encoding.ok()) << encoding.message();
    const std::vector<int64_t> ids(encoding->ids.begin(), encoding->ids.end());
    EXPECT_EQ(ids, ReadIds(golden, "ids")) << tag << ": " << text;
    ++compared;
  }
  EXPECT_GT(compared, 20);
}

INSTANTIATE_TEST_SUITE_P(Shared, GgufReal,
                         testing::Values(RealCase{"smollm2", "smollm"},
                                         RealCase{"llama3_1", "llama-bpe"},
                                         RealCase{"qwen3", "qwen2", true},
                                         RealCase{"gptoss", "gpt-4o"},
                                         RealCase{"deepseek_v3", "deepseek-v3"}),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace tenon::test
