// Damaged and incomplete GGUF files: each refused by its own kind, naming the value.
#include <gtest/gtest.h>

#include "checkpoint/fixtures.h"

namespace tenon {
namespace {

using test::ExpectRefused;
using test::GgufText;
using test::Raw;
using test::TempDir;

class GgufDamage : public testing::Test {
 protected:
  void Expect(std::string_view bytes, std::initializer_list<std::string_view> words) {
    ExpectRefused(dir_.Write("bad.gguf", bytes), words);
  }
  // One key with this encoded value.
  void ExpectKey(GgufType type, std::string_view encoded,
                 std::initializer_list<std::string_view> words) {
    Expect(GgufText::Start(0, 1) + GgufText::Key("some.key", type, encoded), words);
  }
  // One tensor; 64 bytes of data follow.
  void ExpectTensor(std::string_view info, std::initializer_list<std::string_view> words) {
    Expect(GgufText::WithData(GgufText::Start(1, 0) + std::string(info), 64), words);
  }
  static std::string Array(uint32_t type, uint64_t count) { return Raw(type) + Raw(count); }
  TempDir dir_;
};

TEST_F(GgufDamage, Versions) {
  Expect(GgufText::Start(0, 0, 1), {"bad.gguf", "version = 1", "supported: 2, 3", "fix:"});
  Expect(GgufText::Start(0, 0, 4), {"version = 4"});
  Expect(GgufText::Start(0, 0, 0), {"version = 0"});
  Expect(GgufText::Start(0, 0, 0x03000000), {"big-endian", "little-endian"});
  Expect(GgufText::Start(0, 0, 0x02000000), {"big-endian"});
}

TEST_F(GgufDamage, TruncatedAnywhere) {
  const std::string whole = *ReadFile(test::DataPath("goldens_gguf/llama_f16.gguf"));
  for (const size_t size :
       {size_t{4}, size_t{7}, size_t{8}, size_t{20}, size_t{24}, size_t{30}, size_t{1000},
        size_t{7000}, size_t{7540}, size_t{100000}, whole.size() - 1}) {
    Expect(whole.substr(0, size), {"bad.gguf", "truncated", "download it again"});
  }
  Expect(whole.substr(0, whole.size() - 1), {"output_norm.weight", "512 bytes", "583551"});
}

TEST_F(GgufDamage, Counts) {
  Expect(GgufText::Start(0, ~uint64_t{0}), {"metadata keys = 18446744073709551615"});
  Expect(GgufText::Start(~uint64_t{0}, 0), {"tensors = 18446744073709551615"});
  Expect(GgufText::Start(0, uint64_t{1} << 60) + std::string(100, '\0'), {"metadata keys"});
  Expect(GgufText::Start(10, 0) + std::string(100, '\0'), {"tensors = 10", "100 bytes"});
}

TEST_F(GgufDamage, Strings) {
  Expect(GgufText::Start(0, 1) + Raw(~uint64_t{0}) + std::string(20, 'x'),
         {"metadata key 0", "string of 18446744073709551615 bytes", "passes the file's end"});
  ExpectKey(GgufType::kString, Raw(uint64_t{1000}) + "short", {"\"some.key\"", "1000 bytes"});
  ExpectKey(GgufType::kArray, Array(8, 2) + GgufText::String("a") + Raw(uint64_t{99}),
            {"\"some.key\"", "string of 99 bytes"});
}

TEST_F(GgufDamage, Values) {
  ExpectKey(static_cast<GgufType>(13), "12345678", {"\"some.key\"", "value type = 13", "12"});
  ExpectKey(static_cast<GgufType>(0xFFFFFFFF), "12345678", {"value type = 4294967295"});
  ExpectKey(GgufType::kBool, "\x02", {"\"some.key\"", "bool = 2", "0, 1"});
  ExpectKey(GgufType::kArray, Array(7, 3) + std::string("\0\1\7", 3), {"bool = 7"});
  ExpectKey(GgufType::kUint64, "1234", {"\"some.key\"", "8 bytes needed"});
}

TEST_F(GgufDamage, Arrays) {
  ExpectKey(GgufType::kArray, Array(13, 0), {"\"some.key\"", "value type = 13"});
  ExpectKey(GgufType::kArray, Array(5, uint64_t{1} << 62) + "12345678",
            {"array elements = 4611686018427387904"});  // times four bytes it wraps to zero
  ExpectKey(GgufType::kArray, Array(8, 100) + "12345678", {"array elements = 100"});
  ExpectKey(GgufType::kArray, Array(9, uint64_t{1} << 60), {"array elements"});
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += Array(9, 1);
  ExpectKey(GgufType::kArray, deep + Array(0, 0), {"\"some.key\"", "nested deeper than 8"});
}

TEST_F(GgufDamage, RepeatedKey) {
  const std::string key = GgufText::Key("same.key", GgufType::kUint8, "\1");
  Expect(GgufText::Start(0, 2) + key + key, {"\"same.key\"", "twice"});
}

TEST_F(GgufDamage, RepeatedTensor) {
  const std::string info = GgufText::Tensor("same", {8}, 0, 0);
  Expect(GgufText::WithData(GgufText::Start(2, 0) + info + info, 64), {"\"same\"", "twice"});
}

TEST_F(GgufDamage, Alignment) {
  for (const uint32_t alignment : {0u, 3u, 48u, 0x80000000u}) {
    Expect(GgufText::Start(0, 1) +
               GgufText::Key("general.alignment", GgufType::kUint32, Raw(alignment)),
           {"general.alignment", std::to_string(alignment), "power of two"});
  }
  Expect(GgufText::Start(0, 1) +
             GgufText::Key("general.alignment", GgufType::kString, GgufText::String("32")),
         {"general.alignment", "string", "power of two"});
}

TEST_F(GgufDamage, Dimensions) {
  ExpectTensor(GgufText::Tensor("t", {}, 0, 0), {"\"t\"", "number of dimensions = 0", "1 to 5"});
  ExpectTensor(GgufText::Tensor("t", {1, 1, 1, 1, 1, 1}, 0, 0), {"number of dimensions = 6"});
  ExpectTensor(GgufText::Tensor("t", {8, 0}, 0, 0), {"\"t\"", "dimension 1 = 0"});
  ExpectTensor(GgufText::Tensor("t", {~uint64_t{0}}, 0, 0), {"dimension 0 = 18446744073709551615"});
  ExpectTensor(GgufText::Tensor("t", {uint64_t{1} << 40, uint64_t{1} << 40}, 0, 0),
               {"\"t\"", "2^63"});
  ExpectTensor(GgufText::Tensor("t", {33}, 2, 0), {"row length = 33", "Q4_0", "32"});
}

TEST_F(GgufDamage, TensorTypes) {
  ExpectTensor(GgufText::Tensor("t", {8}, 43, 0), {"\"t\"", "tensor type = 43", "unknown"});
  ExpectTensor(GgufText::Tensor("t", {32}, 4, 0), {"Q4_2 (4)", "removed"});
}

TEST_F(GgufDamage, Offsets) {
  ExpectTensor(GgufText::Tensor("t", {8}, 0, 64), {"\"t\"", "32 bytes at offset 64", "truncated"});
  ExpectTensor(GgufText::Tensor("t", {8}, 0, ~uint64_t{0}), {"offset = 18446744073709551615"});
  ExpectTensor(GgufText::Tensor("t", {8}, 0, uint64_t{1} << 62), {"\"t\"", "truncated"});
  ExpectTensor(GgufText::Tensor("t", {17}, 0, 0), {"68 bytes at offset 0"});
  ExpectTensor(GgufText::Tensor("t", {uint64_t{1} << 60}, 0, uint64_t{1} << 62),
               {"\"t\"", "truncated"});
}

TEST_F(GgufDamage, DataSectionThatIsNotThere) {
  // The header ends exactly at the file's end: the aligned start of the data lies beyond it.
  Expect(GgufText::Start(1, 0) + GgufText::Tensor("t", {8}, 0, 0), {"\"t\"", "truncated"});
}

TEST_F(GgufDamage, OddOffsetsAreLegal) {
  const std::string path = dir_.Write(
      "odd.gguf", GgufText::WithData(GgufText::Start(1, 0) + GgufText::Tensor("t", {8}, 0, 7), 64));
  const auto checkpoint = test::OpenOrDie(path);
  EXPECT_EQ(checkpoint->tensors()[0].offset % 2, 1);
}

TEST_F(GgufDamage, FilesThatAreNoModel) {
  for (const auto& [type, word] :
       {std::pair("adapter", "adapter without its base"), std::pair("mmproj", "vision projector"),
        std::pair("imatrix", "importance matrix")}) {
    const std::string bytes =
        GgufText::Start(0, 1) +
        GgufText::Key("general.type", GgufType::kString, GgufText::String(type));
    Expect(bytes, {word, "fix:"});
    EXPECT_TRUE(Checkpoint::Open(dir_ / "bad.gguf", OpenFor::kParts).ok());
  }
}

// A set of parts named as llama.cpp's gguf-split names them.
class SplitSet : public testing::Test {
 protected:
  static std::string Part(int number, int count, std::string_view tensor, int tensors = 3) {
    return GgufText::WithData(
        GgufText::Start(1, 4) +
            GgufText::Key("split.no", GgufType::kUint16, Raw(static_cast<uint16_t>(number))) +
            GgufText::Key("split.count", GgufType::kUint16, Raw(static_cast<uint16_t>(count))) +
            GgufText::Key("split.tensors.count", GgufType::kInt32, Raw(int32_t{tensors})) +
            GgufText::Key("part", GgufType::kInt32, Raw(int32_t{number})) +
            GgufText::Tensor(tensor, {8}, 0, 0),
        32);
  }
  std::string Name(int number) const {
    return "m-0000" + std::to_string(number) + "-of-00003.gguf";
  }
  void WriteAll() {
    for (int i = 0; i < 3; ++i)
      dir_.Write(Name(i + 1), Part(i, 3, std::string(1, static_cast<char>('a' + i))));
  }
  TempDir dir_;
};

TEST_F(SplitSet, AnyPartOpensAll) {
  WriteAll();
  for (int i = 1; i <= 3; ++i) {
    const auto checkpoint = test::OpenOrDie(dir_ / Name(i));
    EXPECT_EQ(checkpoint->tensors().size(), 3u);
    EXPECT_EQ(checkpoint->files().size(), 3u);
    EXPECT_EQ(checkpoint->FindTensor("c")->file, 2);
    EXPECT_EQ(*checkpoint->gguf()->Int("part"), 0);  // the first part's metadata
  }
}

TEST_F(SplitSet, OnePartAloneNamesTheOthers) {
  dir_.Write(Name(2), Part(1, 3, "b"));
  ExpectRefused(dir_ / Name(2),
                {"one part of a split set", "2 of 3", Name(1), Name(3), "download"});
  const auto alone = test::OpenOrDie(dir_ / Name(2), OpenFor::kParts);
  EXPECT_EQ(alone->tensors().size(), 1u);
}

TEST_F(SplitSet, WrongNames) {
  dir_.Write("renamed.gguf", Part(1, 3, "b"));
  ExpectRefused(dir_ / "renamed.gguf", {"part 2 of 3", "-00002-of-00003.gguf"});
  WriteAll();
  dir_.Write(Name(3), Part(1, 3, "c"));
  ExpectRefused(dir_ / Name(1), {Name(3), "part 2 of 3", "3 of 3"});
}

TEST_F(SplitSet, ContentsDisagree) {
  WriteAll();
  dir_.Write(Name(3), Part(2, 3, "a"));
  ExpectRefused(dir_ / Name(1), {"tensor \"a\"", Name(1), Name(3)});
  WriteAll();
  dir_.Write(Name(1), Part(0, 3, "a", 7));
  ExpectRefused(dir_ / Name(1), {"split.tensors.count = 7", "3 tensors"});
  WriteAll();
  dir_.Write(Name(2), "");
  ExpectRefused(dir_ / Name(1), {Name(2), "empty"});
  dir_.Write(Name(2), GgufText::Start(0, 0));
  ExpectRefused(dir_ / Name(1), {Name(2), "split.no"});
}

}  // namespace
}  // namespace tenon
