// Properties that hold for every text, and what a hard text may cost.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <ctime>
#include <random>
#include <thread>

#include "tenon/tokenizer/byte_alphabet.h"
#include "tenon/tokenizer/merge_table.h"
#include "tenon/tokenizer/unicode.h"
#include "tokenizer/golden_files.h"

namespace tenon::test {
namespace {

const std::shared_ptr<const Tokenizer>& ByteLevel() {
  static const auto* tokenizer =
      new std::shared_ptr<const Tokenizer>(LoadTokenizer(GoldenSet{"gpt2", true}));
  return *tokenizer;
}

// Text of characters from many blocks, with the tokenizer's own special tokens in between.
std::string RandomText(std::mt19937* random) {
  static const std::vector<std::string> kFragments = {
      "'s", "  ", "\r\n", "\t", "42", "<|eos|>", "<nl>", "lexeme", "Hello", "_", "\xCC\x81"};
  std::string text;
  for (size_t i = (*random)() % 12; i > 0; --i) {
    const uint32_t draw = (*random)();
    if (draw % 3 == 0) {
      text += kFragments[draw / 3 % kFragments.size()];
      continue;
    }
    const uint32_t limits[] = {0x80, 0x800, 0xD800, 0x110000};
    const uint32_t character = (*random)() % limits[draw % 4];
    AppendUtf8(character >= 0xD800 && character < 0xE000 ? U'x' : char32_t{character}, &text);
  }
  return text;
}

// The tiny GPT-2 kind has every byte; nothing normalises, so nothing may be lost. A token that
// swallows white space loses it by design.
RC_GTEST_PROP(TokenizerProperty, ByteLevelDecodesWhatItEncoded, (uint32_t seed)) {
  std::mt19937 random(seed);
  std::string text = RandomText(&random);
  for (size_t at = 0; (at = text.find("<nl>")) != std::string::npos;) text.erase(at, 4);
  const auto encoding = ByteLevel()->Encode(text, {.add_special_tokens = false});
  RC_ASSERT(encoding.ok());
  const auto decoded = ByteLevel()->Decode(encoding->ids, {.skip_special = false});
  RC_ASSERT(decoded.ok());
  RC_ASSERT(*decoded == text);
}

RC_GTEST_PROP(TokenizerProperty, StreamJoinsToTheWholeDecode,
              (const std::vector<uint16_t>& drawn, bool skip_special)) {
  std::vector<int32_t> ids;
  for (const uint16_t draw : drawn) {
    ids.push_back(static_cast<int32_t>(draw) % ByteLevel()->vocab_size());
  }
  const auto whole = ByteLevel()->Decode(ids, {.skip_special = skip_special});
  RC_ASSERT(whole.ok());
  StreamDecoder stream(ByteLevel(), {.skip_special = skip_special});
  std::string joined;
  for (const int32_t id : ids) {
    const auto text = stream.Push(id);
    RC_ASSERT(text.ok());
    // Nothing goes out in the middle of a character.
    RC_ASSERT(FindInvalidUtf8(*text) == std::string::npos);
    joined += *text;
  }
  joined += stream.Finish();
  RC_ASSERT(joined == *whole);
}

RC_GTEST_PROP(TokenizerProperty, ByteAlphabetIsOneToOne, (const std::string& bytes)) {
  std::string spelling;
  AppendByteSpelling(bytes, &spelling);
  RC_ASSERT(FindInvalidUtf8(spelling) == std::string::npos);
  std::string back;
  RC_ASSERT(AppendSpelledBytes(spelling, &back));
  RC_ASSERT(back == bytes);
}

// However the bytes are cut into pieces.
RC_GTEST_PROP(TokenizerProperty, Utf8StreamDoesNotSeeWhereBytesAreCut,
              (const std::string& bytes, const std::vector<uint8_t>& cuts)) {
  std::string whole;
  Utf8Stream at_once;
  at_once.Push(bytes, &whole);
  at_once.Finish(&whole);
  RC_ASSERT(FindInvalidUtf8(whole) == std::string::npos);
  std::string pieced;
  Utf8Stream stream;
  size_t at = 0;
  for (const uint8_t cut : cuts) {
    const size_t size = std::min<size_t>(cut % 4, bytes.size() - at);
    stream.Push(std::string_view(bytes).substr(at, size), &pieced);
    at += size;
  }
  stream.Push(std::string_view(bytes).substr(at), &pieced);
  stream.Finish(&pieced);
  RC_ASSERT(pieced == whole);
}

// Examples of the Unicode standard, chapter 3.9: one U+FFFD for each maximal part.
TEST(Utf8Stream, ReplacesMaximalIllFormedParts) {
  const auto replaced = [](std::string_view bytes) {
    std::string text;
    Utf8Stream stream;
    stream.Push(bytes, &text);
    stream.Finish(&text);
    return text;
  };
  const std::string mark = "\xEF\xBF\xBD";
  EXPECT_EQ(replaced("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"),
            mark + mark + mark + mark + mark + mark + mark + mark + "A");
  EXPECT_EQ(replaced("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"),
            mark + mark + mark + mark + mark + mark + mark + mark + "A");
  EXPECT_EQ(replaced("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"),
            mark + mark + mark + mark + mark + "A" + mark + mark + "B");
  EXPECT_EQ(replaced("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), mark + mark + mark + mark + "A");
}

TEST(MergeTable, LaterOfTwoEqualPairsCounts) {
  const std::vector<Merge> merges = {{1, 2, 10}, {2, 1, 11}, {1, 2, 12}};
  const MergeTable table(merges);
  EXPECT_EQ(table.Find(1, 2).rank, 2u);
  EXPECT_EQ(table.Find(1, 2).merged, 12);
  EXPECT_EQ(table.Find(2, 1).rank, 1u);
  EXPECT_EQ(table.Find(2, 2).rank, MergeTable::kNone);
  EXPECT_EQ(MergeTable().Find(0, 0).rank, MergeTable::kNone);
}

// The processor time of this thread: other programs do not count.
double CpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// A word of n characters in n log n: 16 times the length may cost 16 times as much and some more
// (the caches end), where n * n would be 256 times.
TEST(TokenizerCost, LongWordsAreNotQuadratic) {
  for (const char* kind : {"llama3", "llama2"}) {
    const auto tokenizer = LoadTokenizer(GoldenSet{kind, true});
    ASSERT_NE(tokenizer, nullptr);
    const auto seconds = [&](size_t size) {
      std::mt19937 random(1);
      std::string word;
      while (word.size() < size) word += static_cast<char>('a' + random() % 26);
      double best = 1e9;
      for (int i = 0; i < 5; ++i) {
        const double start = CpuSeconds();
        EXPECT_TRUE(tokenizer->Encode(word).ok());
        best = std::min(best, CpuSeconds() - start);
      }
      return best;
    };
    EXPECT_LT(seconds(160'000), 120 * seconds(10'000)) << kind;
  }
}

TEST(TokenizerThreads, ManyThreadsShareOneTokenizer) {
  const auto tokenizer = LoadTokenizer(GoldenSet{"llama3", true});
  ASSERT_NE(tokenizer, nullptr);
  // With a character that only the extended regex knows, which is compiled on first use.
  const std::string text = "The engine \xF0\x9F\xA9\xB7 reads 42 pages; don't <|eos|> it.\n\n  x";
  const auto alone = tokenizer->Encode(text);
  ASSERT_TRUE(alone.ok());
  const auto fresh = LoadTokenizer(GoldenSet{"llama3", true});
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        const auto encoding = fresh->Encode(text);
        if (!encoding.ok() || encoding->ids != alone->ids) ++wrong[t];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

}  // namespace
}  // namespace tenon::test
