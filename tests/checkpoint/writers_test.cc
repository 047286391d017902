// What the writers write, the readers read: properties over random tensors and metadata. The bytes
// of one small file of each kind are also held against the formats' definitions.
#include "tenon/checkpoint/writers.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "checkpoint/fixtures.h"
#include "tenon/checkpoint/stored_types.h"

namespace tenon {
namespace {

using test::GgufText;
using test::OpenOrDie;
using test::TempDir;

struct RandomTensor {
  std::string name;
  DType dtype;
  Shape shape;
  std::vector<std::byte> data;
  OutputTensor Output() { return OutputTensor::Of(name, TensorView(dtype, shape, data.data())); }
};

RandomTensor MakeTensor(std::string name, DType dtype, Shape shape) {
  const int64_t bytes =
      *CheckedBytes(InfoOf(dtype).block_elements, InfoOf(dtype).block_bytes, shape.dims());
  const auto values = *rc::gen::container<std::vector<uint8_t>>(static_cast<size_t>(bytes),
                                                                rc::gen::arbitrary<uint8_t>());
  RandomTensor tensor{std::move(name), dtype, shape, {}};
  tensor.data.resize(values.size() + 1);  // never a null address
  std::copy(values.begin(), values.end(), reinterpret_cast<uint8_t*>(tensor.data.data()));
  return tensor;
}

Shape RandomShape(int least_rank, int most_rank, int64_t least_dim, int64_t row_unit) {
  std::vector<int64_t> dims;
  const int rank = *rc::gen::inRange(least_rank, most_rank + 1);
  for (int i = 0; i < rank; ++i) dims.push_back(*rc::gen::inRange<int64_t>(least_dim, 5));
  if (rank > 0) dims.back() *= row_unit;
  return Shape(std::span<const int64_t>(dims));
}

std::vector<std::string> RandomNames() {
  const auto names = *rc::gen::container<std::set<std::string>>(
      rc::gen::container<std::string>(rc::gen::inRange<char>(' ', '\x7f')));
  std::vector<std::string> list(names.begin(), names.end());
  std::erase(list, "__metadata__");
  return list;
}

void CheckSame(const Checkpoint& checkpoint, const std::vector<RandomTensor>& tensors) {
  RC_ASSERT(checkpoint.tensors().size() == tensors.size());
  for (const RandomTensor& tensor : tensors) {
    const StoredTensor* stored = checkpoint.FindTensor(tensor.name);
    RC_ASSERT(stored != nullptr);
    RC_ASSERT(stored->dtype == tensor.dtype);
    RC_ASSERT(stored->shape == tensor.shape);
    RC_ASSERT(stored->bytes == static_cast<int64_t>(tensor.data.size()) - 1);
    const TensorView view = *checkpoint.MapTensor(*stored);
    RC_ASSERT(std::memcmp(view.data(), tensor.data.data(), static_cast<size_t>(stored->bytes)) ==
              0);
  }
}

std::vector<OutputTensor> Outputs(std::vector<RandomTensor>& tensors) {
  std::vector<OutputTensor> outputs;
  for (RandomTensor& tensor : tensors) outputs.push_back(tensor.Output());
  return outputs;
}

TEST(Writers, SafetensorsRoundTrip) {
  EXPECT_TRUE(rc::check("safetensors", [] {
    const TempDir dir;
    std::vector<RandomTensor> tensors;
    for (const std::string& name : RandomNames()) {
      const DType dtype = static_cast<DType>(*rc::gen::inRange(0, 16));  // the plain ones
      tensors.push_back(MakeTensor(name, dtype, RandomShape(0, 5, 0, 1)));
    }
    const Status status =
        WriteSafetensors(dir / "t.safetensors", Outputs(tensors), {{"format", "pt"}});
    RC_ASSERT(status.ok());
    const auto checkpoint = OpenOrDie(dir / "t.safetensors");
    CheckSame(*checkpoint, tensors);
    for (const StoredTensor& tensor : checkpoint->tensors()) {
      RC_ASSERT(tensor.offset % InfoOf(tensor.dtype).block_bytes == 0);  // zero-copy
    }
  }));
}

TEST(Writers, SafetensorsBytes) {
  TempDir dir;
  float values[2] = {1.0f, 2.0f};
  const OutputTensor tensor =
      OutputTensor::Of("a", TensorView(DType::kF32, {2}, reinterpret_cast<std::byte*>(values)));
  ASSERT_TRUE(WriteSafetensors(dir / "t", {&tensor, 1}, {{"format", "pt"}}).ok());
  std::string header =
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  EXPECT_EQ(*ReadFile(dir / "t"), test::Raw(static_cast<uint64_t>(header.size())) + header +
                                      test::Raw(1.0f) + test::Raw(2.0f));
  EXPECT_FALSE(FileExists(dir / "t.partial"));
}

// A random value of any type, arrays of arrays included, in the format's own bytes.
std::string RandomValue(GgufType type, int depth) {
  if (type == GgufType::kString) return GgufText::String(*rc::gen::arbitrary<std::string>());
  if (type == GgufType::kBool) return std::string(1, *rc::gen::inRange<char>(0, 2));
  if (type != GgufType::kArray) {
    return *rc::gen::container<std::string>(static_cast<size_t>(FixedBytes(type)),
                                            rc::gen::arbitrary<char>());
  }
  const auto element = static_cast<GgufType>(*rc::gen::inRange(0, 13));
  const int count = depth < 3 ? *rc::gen::inRange(0, 4) : 0;
  std::string encoded =
      test::Raw(static_cast<uint32_t>(element)) + test::Raw(static_cast<uint64_t>(count));
  for (int i = 0; i < count; ++i) encoded += RandomValue(element, depth + 1);
  return encoded;
}

std::string Text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(Writers, GgufRoundTrip) {
  EXPECT_TRUE(rc::check("gguf", [] {
    const TempDir dir;
    GgufBuilder metadata;
    const int64_t alignment = int64_t{1} << *rc::gen::inRange(0, 8);
    metadata.SetUint32("general.alignment", static_cast<uint32_t>(alignment));
    for (const std::string& key : RandomNames()) {
      const auto type = static_cast<GgufType>(*rc::gen::inRange(0, 13));
      metadata.SetEncoded("k." + key, type, RandomValue(type, 0));
    }
    std::vector<RandomTensor> tensors;
    for (const std::string& name : RandomNames()) {
      const DType dtype =
          *rc::gen::element(DType::kF32, DType::kF16, DType::kBF16, DType::kI8, DType::kQ4_0,
                            DType::kQ4_1, DType::kQ8_0, DType::kQ6_K, DType::kQ4_K);
      tensors.push_back(
          MakeTensor(name, dtype, RandomShape(1, 4, 1, InfoOf(dtype).block_elements)));
    }
    RC_ASSERT(WriteGguf(dir / "t.gguf", metadata, Outputs(tensors)).ok());
    const auto checkpoint = OpenOrDie(dir / "t.gguf");
    CheckSame(*checkpoint, tensors);
    for (const StoredTensor& tensor : checkpoint->tensors()) {
      RC_ASSERT(tensor.offset % alignment == 0);
    }
    const auto entries = checkpoint->gguf()->entries();
    RC_ASSERT(entries.size() == metadata.entries().size());
    GgufBuilder copied;
    for (size_t i = 0; i < entries.size(); ++i) {
      RC_ASSERT(entries[i].key == metadata.entries()[i].key);
      RC_ASSERT(entries[i].value.type() == metadata.entries()[i].type);
      RC_ASSERT(Text(entries[i].value.encoded()) == metadata.entries()[i].encoded);
      copied.Copy(entries[i].key, entries[i].value);
      // Arrays taken apart give their own bytes, in order.
      if (const auto elements = entries[i].value.AsArray()) {
        std::string joined = Text(entries[i].value.encoded().first(12));
        for (const GgufValue& element : *elements) joined += Text(element.encoded());
        RC_ASSERT(joined == metadata.entries()[i].encoded);
      }
    }
    RC_ASSERT(WriteGguf(dir / "copy.gguf", copied, Outputs(tensors)).ok());
    RC_ASSERT(*ReadFile(dir / "copy.gguf") == *ReadFile(dir / "t.gguf"));
  }));
}

TEST(Writers, GgufSetters) {
  TempDir dir;
  GgufBuilder metadata;
  const int32_t ints[] = {3, -4};
  const float floats[] = {0.25f};
  const std::string_view strings[] = {"a", "", "longer text"};
  metadata.SetUint32("u32", 7)
      .SetInt32("i32", -7)
      .SetUint64("u64", 1u << 31)
      .SetFloat32("f32", 2.5f);
  metadata.SetBool("yes", true).SetString("text", "hi").SetInt32s("ints", ints);
  metadata.SetFloat32s("floats", floats).SetStrings("strings", strings);
  metadata.SetString("text", "replaced");
  ASSERT_TRUE(WriteGguf(dir / "m.gguf", metadata, {}).ok());
  const auto checkpoint = OpenOrDie(dir / "m.gguf");
  const GgufMetadata& m = *checkpoint->gguf();
  EXPECT_EQ(m.entries().size(), 9u);
  EXPECT_EQ(*m.Int("u32"), 7);
  EXPECT_EQ(*m.Int("i32"), -7);
  EXPECT_EQ(*m.Int("u64"), int64_t{1} << 31);
  EXPECT_EQ(*m.Float("f32"), 2.5);
  EXPECT_TRUE(*m.Bool("yes"));
  EXPECT_EQ(*m.String("text"), "replaced");
  EXPECT_EQ(*m.Ints("ints"), (std::vector<int64_t>{3, -4}));
  EXPECT_EQ(*m.Floats("floats"), std::vector<double>{0.25});
  EXPECT_EQ(*m.Strings("strings"), (std::vector<std::string_view>{"a", "", "longer text"}));
}

// A real file written again from what was read is the same file (gguf-py writes as we do).
TEST(Writers, RealGgufFileIsReproduced) {
  for (const char* name : {"llama_q4_0", "llama_f16", "qwen3moe_q8_0"}) {
    const std::string path = test::DataPath(std::string("goldens_gguf/") + name + ".gguf");
    const auto checkpoint = OpenOrDie(path);
    GgufBuilder metadata;
    for (const auto& entry : checkpoint->gguf()->entries()) metadata.Copy(entry.key, entry.value);
    std::vector<OutputTensor> tensors;
    for (const StoredTensor& tensor : checkpoint->tensors()) {
      tensors.push_back(OutputTensor::Of(std::string(tensor.name), *checkpoint->MapTensor(tensor)));
    }
    TempDir dir;
    ASSERT_TRUE(WriteGguf(dir / "again.gguf", metadata, tensors).ok());
    EXPECT_TRUE(*ReadFile(dir / "again.gguf") == *ReadFile(path)) << name;
  }
}

class WriterErrors : public testing::Test {
 protected:
  // The error of a write, which leaves no file and no temporary one.
  template <typename Write>
  std::string Error(Write write) {
    const Status status = write(dir_ / "t");
    EXPECT_FALSE(status.ok());
    EXPECT_FALSE(FileExists(dir_ / "t"));
    EXPECT_FALSE(FileExists(dir_ / "t.partial"));
    return status.message();
  }
  std::string Gguf(std::vector<OutputTensor> tensors, const GgufBuilder& metadata = {}) {
    return Error([&](const std::string& path) { return WriteGguf(path, metadata, tensors); });
  }
  std::string Safetensors(std::vector<OutputTensor> tensors) {
    return Error([&](const std::string& path) { return WriteSafetensors(path, tensors); });
  }
  OutputTensor Tensor(DType dtype, const Shape& shape) {
    return OutputTensor::Of("x", TensorView(dtype, shape, data_));
  }
  static void Expect(const std::string& text, std::initializer_list<const char*> words) {
    for (const char* word : words) EXPECT_NE(text.find(word), std::string::npos) << text;
  }
  TempDir dir_;
  std::byte data_[4096] = {};
};

TEST_F(WriterErrors, Types) {
  Expect(Safetensors({Tensor(DType::kQ4_0, {32})}), {"\"x\"", "cannot hold q4_0", "F32"});
  Expect(Gguf({Tensor(DType::kF8E4M3, {32})}), {"\"x\"", "cannot hold f8_e4m3", "Q4_0"});
}

TEST_F(WriterErrors, Names) {
  Expect(Safetensors({Tensor(DType::kF32, {1}), Tensor(DType::kF32, {1})}), {"\"x\"", "twice"});
  Expect(Gguf({Tensor(DType::kF32, {1}), Tensor(DType::kF32, {1})}), {"\"x\"", "twice"});
}

TEST_F(WriterErrors, Shapes) {
  Expect(Gguf({Tensor(DType::kF32, {0, 4})}), {"\"x\"", "[0, 4]"});
  Expect(Gguf({Tensor(DType::kF32, {1, 1, 1, 1, 1})}), {"1 to 4 dimensions"});
  OutputTensor odd = Tensor(DType::kQ4_0, {32});
  odd.shape = {33};
  Expect(Gguf({odd}), {"whole blocks"});
}

TEST_F(WriterErrors, Alignment) {
  GgufBuilder metadata;
  metadata.SetUint32("general.alignment", 24);
  Expect(Gguf({}, metadata), {"general.alignment", "power of two"});
}

TEST_F(WriterErrors, LoadFails) {
  OutputTensor failing{
      "x", DType::kF32, {4}, []() -> Result<LoadedTensor> { return IoError("the disk is gone"); }};
  Expect(Gguf({failing}), {"\"x\"", "the disk is gone"});
  Expect(Safetensors({failing}), {"\"x\"", "the disk is gone"});
  OutputTensor other = Tensor(DType::kF32, {4});
  other.shape = {5};
  Expect(Safetensors({other}), {"f32 [4]", "f32 [5]"});
}

}  // namespace
}  // namespace tenon
