// The text side of a checkpoint: which tokens end an answer, where the chat template comes from,
// and which vocabulary is read.
#include "tenon/engine/text.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "checkpoint/fixtures.h"
#include "support/words.h"
#include "tenon/checkpoint/writers.h"

namespace tenon {
namespace {

using test::ExpectWords;
using test::OpenOrDie;
using test::TempDir;

constexpr const char* kTokenizer = "goldens/tokenizers_tiny/gpt2/tokenizer.json";

class TextTest : public testing::Test {
 protected:
  void SetUp() override { directory_.Write("config.json", R"({"eos_token_id": 2})"); }
  std::unique_ptr<Checkpoint> Open() { return OpenOrDie(directory_.path(), OpenFor::kParts); }
  void CopyTokenizer() {
    std::filesystem::copy(test::DataPath(kTokenizer), directory_ / "tokenizer.json");
  }
  // The tokenizer's own end token is <|tag|>, id 3.
  std::shared_ptr<const Tokenizer> TokenizerWithEnd() {
    CopyTokenizer();
    directory_.Write("tokenizer_config.json", R"({"eos_token": "<|tag|>"})");
    return *LoadTokenizer(*Open());
  }
  TempDir directory_;
};

// --- end tokens

TEST_F(TextTest, EndTokensAreTheUnionOfAllThatSaySo) {
  const auto tokenizer = TokenizerWithEnd();
  GenerationConfig generation;
  EXPECT_EQ(EndTokens(generation, *tokenizer), std::set<int32_t>{3});
  generation.eos = {{7}, {9}, {3}};
  EXPECT_EQ(EndTokens(generation, *tokenizer), (std::set<int32_t>{3, 7, 9}));
}

TEST_F(TextTest, AnIdThatNoTokenHasEndsNothing) {
  GenerationConfig generation;
  generation.eos = {{7}, {int64_t{1} << 32 | 5}};
  EXPECT_EQ(EndTokens(generation, *TokenizerWithEnd()), (std::set<int32_t>{3, 7}));
}

// --- chat template

TEST_F(TextTest, NoTemplate) {
  EXPECT_EQ(*ChatTemplateSource(*Open()), std::nullopt);
  directory_.Write("tokenizer_config.json", R"({"eos_token": "x"})");
  EXPECT_EQ(*ChatTemplateSource(*Open()), std::nullopt);
  directory_.Write("tokenizer_config.json", R"({"chat_template": null})");
  EXPECT_EQ(*ChatTemplateSource(*Open()), std::nullopt);
}

TEST_F(TextTest, TheTemplatesFileComesBeforeTheConfig) {
  directory_.Write("tokenizer_config.json", R"({"chat_template": "old {{ x }}"})");
  EXPECT_EQ(*ChatTemplateSource(*Open()), "old {{ x }}");
  directory_.Write("chat_template.jinja", "new {{ y }}\n");
  EXPECT_EQ(*ChatTemplateSource(*Open()), "new {{ y }}\n");
}

TEST_F(TextTest, OfAListTheDefaultCounts) {
  directory_.Write("tokenizer_config.json",
                   R"({"chat_template": [{"name": "tool_use", "template": "T"},
                                         {"name": "default", "template": "D"}]})");
  EXPECT_EQ(*ChatTemplateSource(*Open()), "D");
  directory_.Write("tokenizer_config.json",
                   R"({"chat_template": [{"name": "tool_use", "template": "T"}, 5, {}]})");
  EXPECT_EQ(*ChatTemplateSource(*Open()), std::nullopt);
}

TEST_F(TextTest, ATemplateOfAWrongKindIsAnError) {
  directory_.Write("tokenizer_config.json", R"({"chat_template": 5})");
  const auto source = ChatTemplateSource(*Open());
  ASSERT_FALSE(source.ok());
  EXPECT_EQ(source.code(), StatusCode::kRefused);
  ExpectWords(source.message(), {"chat_template", "integer", "a string or a list"});
  directory_.Write("tokenizer_config.json", "{");
  EXPECT_FALSE(ChatTemplateSource(*Open()).ok());
}

// --- vocabulary

TEST_F(TextTest, ADirectoryNeedsItsTokenizer) {
  const auto tokenizer = LoadTokenizer(*Open());
  ASSERT_FALSE(tokenizer.ok());
  EXPECT_EQ(tokenizer.code(), StatusCode::kRefused);
  ExpectWords(tokenizer.message(), {directory_.path(), "no tokenizer.json", "fix:"});
}

TEST_F(TextTest, ADirectorysTokenizerIsRead) {
  CopyTokenizer();
  const auto tokenizer = LoadTokenizer(*Open());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.message();
  EXPECT_EQ((*tokenizer)->TokenId("<|eos|>"), 2);
}

// A GGUF file of a vocabulary and no tensors.
class GgufTextTest : public testing::Test {
 protected:
  std::unique_ptr<Checkpoint> Write(const GgufBuilder& metadata) {
    const std::string path = directory_ / "x.gguf";
    const Status status = WriteGguf(path, metadata, {});
    TN_CHECK(status.ok(), status.message().c_str());
    return OpenOrDie(path);
  }
  static GgufBuilder Vocabulary() {
    // Byte-level pieces, the merge "a b" and a control token.
    constexpr std::string_view kTokens[] = {"a", "b", "ab", "<end>"};
    constexpr std::string_view kMerges[] = {"a b"};
    constexpr int32_t kTypes[] = {1, 1, 1, 3};
    GgufBuilder metadata;
    metadata.SetString("general.architecture", "llama")
        .SetString("tokenizer.ggml.model", "gpt2")
        .SetString("tokenizer.ggml.pre", "gpt-2")
        .SetStrings("tokenizer.ggml.tokens", kTokens)
        .SetInt32s("tokenizer.ggml.token_type", kTypes)
        .SetStrings("tokenizer.ggml.merges", kMerges)
        .SetUint32("tokenizer.ggml.eos_token_id", 3);
    return metadata;
  }
  TempDir directory_;
};

TEST_F(GgufTextTest, TheFilesVocabularyIsRead) {
  const auto checkpoint = Write(Vocabulary());
  const auto tokenizer = LoadTokenizer(*checkpoint);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.message();
  const auto encoded = (*tokenizer)->Encode("abba", {.add_special_tokens = false});
  ASSERT_TRUE(encoded.ok()) << encoded.message();
  EXPECT_EQ(encoded->ids, (std::vector<int32_t>{2, 1, 0}));
  EXPECT_EQ((*tokenizer)->special().eos, 3);
  EXPECT_TRUE((*tokenizer)->IsSpecial(3));
  EXPECT_EQ(EndTokens({}, **tokenizer), std::set<int32_t>{3});
}

TEST_F(GgufTextTest, AbsentAndBrokenVocabularies) {
  const auto refused = [](const Result<std::shared_ptr<const Tokenizer>>& tokenizer,
                          std::initializer_list<std::string_view> words) {
    ASSERT_FALSE(tokenizer.ok());
    ExpectWords(tokenizer.message(), words);
  };
  refused(LoadTokenizer(*Write(GgufBuilder().SetString("general.architecture", "llama"))),
          {"x.gguf", "no tokenizer", "tokenizer.ggml.model"});
  GgufBuilder wrong = Vocabulary();
  wrong.SetString("tokenizer.ggml.eos_token_id", "three");
  refused(LoadTokenizer(*Write(wrong)), {"x.gguf", "tokenizer.ggml.eos_token_id"});
  GgufBuilder numbers = Vocabulary();
  constexpr int32_t kNumbers[] = {1, 2};
  numbers.SetInt32s("tokenizer.ggml.tokens", kNumbers);
  refused(LoadTokenizer(*Write(numbers)), {"tokenizer.ggml.tokens"});
  // A type that would be "control" if its upper half were dropped.
  GgufBuilder wide = Vocabulary();
  std::string types(12 + 4 * sizeof(int64_t), '\0');
  types[0] = static_cast<char>(GgufType::kInt64);
  types[4] = 4;
  types[12] = 3;
  types[12 + 4] = 1;
  wide.SetEncoded("tokenizer.ggml.token_type", GgufType::kArray, types);
  refused(LoadTokenizer(*Write(wide)), {"token_type[0] = 4294967299", "allowed"});
}

TEST_F(GgufTextTest, TheTemplateIsInTheMetadata) {
  EXPECT_EQ(*ChatTemplateSource(*Write(Vocabulary())), std::nullopt);
  GgufBuilder with = Vocabulary();
  with.SetString("tokenizer.chat_template", "{{ messages }}");
  EXPECT_EQ(*ChatTemplateSource(*Write(with)), "{{ messages }}");
  GgufBuilder wrong = Vocabulary();
  wrong.SetUint32("tokenizer.chat_template", 1);
  EXPECT_FALSE(ChatTemplateSource(*Write(wrong)).ok());
}

}  // namespace
}  // namespace tenon
