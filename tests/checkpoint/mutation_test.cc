// Thousands of damaged files: whatever is flipped, cut, inserted or overwritten, opening gives a
// Checkpoint or an error, and what it gives can be used: no crash, no read outside the file. Meant
// for the sanitizer builds; the seed is fixed, and printed with the file of a failure.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "checkpoint/fixtures.h"
#include "checkpoint/names.h"
#include "tenon/checkpoint/tensor_index.h"

namespace tenon {
namespace {

using test::TempDir;

// Reads everything that the file says it has.
uint64_t Touch(const Checkpoint& checkpoint) {
  uint64_t sum = 0;
  for (const StoredTensor& tensor : checkpoint.tensors()) {
    const auto view = checkpoint.MapTensor(tensor);
    if (view.ok() && view->bytes() > 0) {
      sum += static_cast<uint64_t>(view->data()[0]);
      sum += static_cast<uint64_t>(view->data()[view->bytes() - 1]);
    }
  }
  if (checkpoint.gguf() != nullptr) {
    for (const GgufMetadata::Entry& entry : checkpoint.gguf()->entries()) {
      sum += entry.key.size() + entry.value.KindText().size();
      if (const auto strings = entry.value.AsStrings()) {
        for (const std::string_view text : *strings) sum += text.empty() ? 0 : text.back();
      }
      if (const auto elements = entry.value.AsArray()) sum += elements->size();
      if (const auto floats = entry.value.AsFloats()) sum += floats->size();
    }
  }
  const auto index = TensorIndex::Build(checkpoint, test::GgufNames(4, 2, true));
  if (!index.ok()) return sum;
  for (const IndexedTensor& tensor : index->tensors()) {
    const auto loaded = LoadTensor(checkpoint, tensor);
    if (loaded.ok() && loaded->view.bytes() > 0) {
      sum += static_cast<uint64_t>(loaded->view.data()[loaded->view.bytes() - 1]);
    }
  }
  return sum;
}

class Mutator {
 public:
  explicit Mutator(std::string whole, size_t header)
      : whole_(std::move(whole)), header_(std::min(header, whole_.size())) {}

  std::string Next(uint32_t seed) {
    std::mt19937 random(seed);
    std::string bytes = whole_;
    const int edits = 1 + static_cast<int>(random() % 3);
    for (int i = 0; i < edits; ++i) Edit(bytes, random);
    return bytes;
  }

 private:
  // Mostly the header: data bytes mean nothing here.
  size_t Position(const std::string& bytes, std::mt19937& random) const {
    const size_t limit = random() % 16 == 0 ? bytes.size() : std::min(header_, bytes.size());
    return limit == 0 ? 0 : random() % limit;
  }

  void Edit(std::string& bytes, std::mt19937& random) const {
    if (bytes.empty()) return;
    const size_t at = Position(bytes, random);
    const auto overwrite = [&](const std::string& value) {
      bytes.replace(at, std::min(value.size(), bytes.size() - at), value);
    };
    switch (random() % 8) {
      case 0:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << (random() % 8)));
        break;
      case 1:
        bytes[at] = static_cast<char>(random());
        break;
      case 2: {  // numbers that overflow sums and products
        constexpr uint64_t kNumbers[] = {0,
                                         1,
                                         0x7FFFFFFF,
                                         0xFFFFFFFF,
                                         uint64_t{1} << 62,
                                         uint64_t{1} << 63,
                                         ~uint64_t{0},
                                         ~uint64_t{0} - 31};
        overwrite(test::Raw(kNumbers[random() % std::size(kNumbers)]));
        break;
      }
      case 3:
        overwrite(test::Raw(static_cast<uint32_t>(random() % 20)));
        break;
      case 4:
        bytes.resize(at);
        break;
      case 5:
        bytes.erase(at, 1 + random() % 16);
        break;
      case 6:
        bytes.insert(at, 1 + random() % 16, static_cast<char>(random()));
        break;
      default: {  // a piece of the file over another
        const size_t from = Position(bytes, random);
        overwrite(bytes.substr(from, 1 + random() % 64));
      }
    }
  }

  std::string whole_;
  size_t header_;
};

// Opens `count` mutations of a file; returns how many were refused.
int OpenMutations(const std::string& source, const char* name, size_t header, uint32_t count) {
  const TempDir dir;
  Mutator mutator(*ReadFile(source), header);
  int refused = 0;
  for (uint32_t seed = 0; seed < count; ++seed) {
    SCOPED_TRACE(testing::Message() << source << " seed " << seed);
    const std::string path = dir.Write(name, mutator.Next(seed));
    const auto opened = Checkpoint::Open(path);
    if (opened.ok()) {
      Touch(**opened);
      continue;
    }
    ++refused;
    EXPECT_EQ(opened.code(), StatusCode::kRefused) << opened.message();
    EXPECT_NE(opened.message().find(name), std::string::npos) << opened.message();
    EXPECT_LT(opened.message().size(), 3000u);
  }
  return refused;
}

TEST(Mutations, Gguf) {
  const int refused =
      OpenMutations(test::DataPath("goldens_gguf/llama_q4_0.gguf"), "m.gguf", 9632, 3000);
  EXPECT_GT(refused, 1000);
  EXPECT_LT(refused, 3000);
}

TEST(Mutations, GgufTensorDirectory) {
  // A file that is nearly all directory and no vocabulary, so that every edit hits structure.
  using test::GgufText;
  const TempDir dir;
  std::string header =
      GgufText::Start(9, 2) +
      GgufText::Key("general.alignment", GgufType::kUint32, test::Raw(uint32_t{32})) +
      GgufText::Key("a", GgufType::kArray,
                    test::Raw(uint32_t{9}) + test::Raw(uint64_t{1}) + test::Raw(uint32_t{8}) +
                        test::Raw(uint64_t{1}) + GgufText::String("nested"));
  for (int i = 0; i < 3; ++i) {
    const std::string layer = "blk." + std::to_string(i) + ".";
    header += GgufText::Tensor(layer + "attn_q.weight", {32, 8}, 8, 0);
    header += GgufText::Tensor(layer + "ffn_up_exps.weight", {32, 2, 4}, 2, 32);
    header += GgufText::Tensor(layer + "attn_norm.weight", {8}, 0, 64);
  }
  const size_t size = header.size();
  const std::string path = dir.Write("source.gguf", GgufText::WithData(header, 512));
  ASSERT_TRUE(Checkpoint::Open(path).ok());
  const int refused = OpenMutations(path, "m.gguf", size, 4000);
  EXPECT_GT(refused, 1000);
  EXPECT_LT(refused, 4000);
}

TEST(Mutations, Safetensors) {
  const int refused =
      OpenMutations(test::DataPath("goldens_quant/q4_0.safetensors"), "m.safetensors", 496, 3000);
  EXPECT_GT(refused, 1000);
  EXPECT_LT(refused, 3000);
}

TEST(Mutations, EveryPrefixOfTheHeaders) {
  const TempDir dir;
  const std::string gguf = *ReadFile(test::DataPath("goldens_gguf/llama_f16.gguf"));
  const std::string safetensors = *ReadFile(test::DataPath("goldens_quant/q8_0.safetensors"));
  for (size_t size = 0; size < 7600; size += size < 600 ? 1 : 7) {
    EXPECT_EQ(Checkpoint::Open(dir.Write("m", gguf.substr(0, size))).code(), StatusCode::kRefused);
  }
  for (size_t size = 0; size < 600; ++size) {
    EXPECT_EQ(Checkpoint::Open(dir.Write("m", safetensors.substr(0, size))).code(),
              StatusCode::kRefused);
  }
}

TEST(Mutations, Index) {
  const TempDir dir;
  test::CopyData("goldens/llama_tied_fp32_sharded", dir);
  const std::string name = dir / "model.safetensors.index.json";
  Mutator mutator(*ReadFile(name), 1700);
  int refused = 0;
  for (uint32_t seed = 0; seed < 1500; ++seed) {
    dir.Write("model.safetensors.index.json", mutator.Next(seed));
    const auto opened = Checkpoint::Open(dir.path());
    if (opened.ok()) {
      EXPECT_EQ((*opened)->files().size(), 4u);
    } else {
      ++refused;
      EXPECT_EQ(opened.code(), StatusCode::kRefused) << opened.message();
    }
  }
  EXPECT_GT(refused, 500);
}

}  // namespace
}  // namespace tenon
