// GGUF files that are as they should be. Expected facts: gguf-py 0.19 (GGUFReader).
#include "tenon/checkpoint/gguf.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>

#include "checkpoint/fixtures.h"
#include "tenon/checkpoint/stored_types.h"
#include "tenon/checkpoint/writers.h"

namespace tenon {
namespace {

using test::GgufText;
using test::OpenOrDie;
using test::TempDir;

struct ExpectedTensor {
  const char* name;
  const char* type;
  Shape shape;
  int64_t offset;
  int64_t bytes;
};

void ExpectTensors(const Checkpoint& checkpoint, std::span<const ExpectedTensor> expected) {
  for (const ExpectedTensor& want : expected) {
    const StoredTensor* tensor = checkpoint.FindTensor(want.name);
    ASSERT_NE(tensor, nullptr) << want.name;
    EXPECT_EQ(tensor->type_name, want.type) << want.name;
    EXPECT_EQ(tensor->shape, want.shape) << want.name;
    EXPECT_EQ(tensor->offset, want.offset) << want.name;
    EXPECT_EQ(tensor->bytes, want.bytes) << want.name;
  }
}

TEST(Gguf, LlamaQ40) {
  const auto checkpoint = OpenOrDie(test::DataPath("goldens_gguf/llama_q4_0.gguf"));
  EXPECT_EQ(checkpoint->container(), Container::kGguf);
  EXPECT_EQ(checkpoint->config(), nullptr);
  EXPECT_EQ(checkpoint->tensors().size(), 21u);
  const ExpectedTensor expected[] = {
      {"token_embd.weight", "Q4_0", {340, 256}, 9632, 48960},
      {"blk.0.attn_k.weight", "Q4_0", {128, 256}, 95456, 18432},
      {"blk.1.ffn_norm.weight", "F32", {256}, 504032, 1024},
      {"output.weight", "Q8_0", {340, 256}, 506080, 92480},
  };
  ExpectTensors(*checkpoint, expected);
  EXPECT_EQ(checkpoint->FindTensor("output.weight")->dtype, DType::kQ8_0);

  const GgufMetadata& metadata = *checkpoint->gguf();
  EXPECT_EQ(metadata.version(), 3u);
  EXPECT_EQ(metadata.entries().size(), 25u);
  EXPECT_EQ(*metadata.String("general.architecture"), "llama");
  EXPECT_EQ(*metadata.Int("llama.embedding_length"), 256);
  EXPECT_EQ(*metadata.Float("llama.attention.layer_norm_rms_epsilon"), 9.999999747378752e-06);
  EXPECT_EQ(*metadata.Float("llama.rope.dimension_count"), 64.0);
  EXPECT_TRUE(*metadata.Bool("tokenizer.ggml.add_bos_token"));
  EXPECT_FALSE(*metadata.Bool("tokenizer.ggml.add_eos_token"));
  const auto tokens = *metadata.Strings("tokenizer.ggml.tokens");
  ASSERT_EQ(tokens.size(), 340u);
  EXPECT_EQ(tokens[4], "<end_of_turn>");
  EXPECT_EQ(tokens[7], "<0x02>");
  const auto types = *metadata.Ints("tokenizer.ggml.token_type");
  ASSERT_EQ(types.size(), 340u);
  EXPECT_EQ(std::vector<int64_t>(types.begin(), types.begin() + 6),
            (std::vector<int64_t>{2, 3, 3, 4, 4, 6}));
  EXPECT_EQ(metadata.Floats("tokenizer.ggml.scores")->size(), 340u);
  EXPECT_EQ(metadata.String("tokenizer.chat_template")->size(), 149u);
}

TEST(Gguf, LlamaF16AndItsBytes) {
  const auto checkpoint = OpenOrDie(test::DataPath("goldens_gguf/llama_f16.gguf"));
  const ExpectedTensor expected[] = {
      {"token_embd.weight", "F16", {320, 128}, 7552, 81920},
      {"blk.0.ffn_down.weight", "F16", {128, 192}, 286080, 49152},
      {"output_norm.weight", "F32", {128}, 583040, 512},
  };
  ExpectTensors(*checkpoint, expected);
  const auto view = [&](const char* name) {
    return *checkpoint->MapTensor(*checkpoint->FindTensor(name));
  };
  EXPECT_EQ(test::Fnv(view("blk.0.attn_q.weight")), 0x5856e8fc6babe538u);
  EXPECT_EQ(test::Fnv(view("output_norm.weight")), 0x2ae2683c82ed7cf9u);
  const auto tokens = *checkpoint->gguf()->Strings("tokenizer.ggml.tokens");
  EXPECT_EQ(tokens.size(), 320u);
  EXPECT_EQ(tokens[319], "ro");
  const auto merges = *checkpoint->gguf()->Strings("tokenizer.ggml.merges");
  EXPECT_EQ(merges.size(), 59u);
  EXPECT_EQ(merges[58], "r o");
}

TEST(Gguf, Qwen3MoeHasThreeDimensions) {
  const auto checkpoint = OpenOrDie(test::DataPath("goldens_gguf/qwen3moe_q8_0.gguf"));
  EXPECT_EQ(checkpoint->tensors().size(), 27u);
  const ExpectedTensor expected[] = {
      {"blk.0.ffn_gate_exps.weight", "Q8_0", {4, 64, 128}, 104160, 34816},
      {"blk.0.ffn_down_exps.weight", "Q8_0", {4, 128, 64}, 173792, 34816},
      {"blk.1.ffn_gate_inp.weight", "F32", {4, 128}, 368608, 2048},
  };
  ExpectTensors(*checkpoint, expected);
  EXPECT_EQ(*checkpoint->gguf()->Int("qwen3moe.expert_used_count"), 2);
}

TEST(Gguf, MixedTypesAreListedWhetherDecodedOrNot) {
  const auto checkpoint = OpenOrDie(test::DataPath("goldens_gguf/llama_q4_k_m.gguf"));
  const ExpectedTensor expected[] = {
      {"token_embd.weight", "Q4_K", {320, 256}, 7616, 46080},
      {"blk.1.ffn_down.weight", "Q6_K", {256, 256}, 495040, 53760},
      {"output.weight", "Q6_K", {320, 256}, 551872, 67200},
  };
  ExpectTensors(*checkpoint, expected);
  EXPECT_EQ(checkpoint->FindTensor("token_embd.weight")->type_number, 12);
}

// Every number of ggml: what is decoded maps, what is not is refused by name when used.
TEST(Gguf, EveryTensorType) {
  TempDir dir;
  int supported = 0;
  for (uint32_t number = 0; number < 43; ++number) {
    const auto type = GgmlType(number);
    ASSERT_TRUE(type.has_value()) << number;
    const std::string header = GgufText::Start(1, 0) + GgufText::Tensor("t", {256, 3}, number, 0);
    const std::string path = dir.Write("t.gguf", GgufText::WithData(header, 256 * 8 * 3));
    if (type->block_bytes == 0) {
      test::ExpectRefused(path, {type->name, std::to_string(number), "removed", "supported: F32"});
      continue;
    }
    const auto checkpoint = OpenOrDie(path);
    const StoredTensor& tensor = checkpoint->tensors()[0];
    EXPECT_EQ(tensor.bytes, 3 * 256 / type->block_elements * type->block_bytes);
    const auto view = checkpoint->MapTensor(tensor);
    EXPECT_EQ(view.ok(), type->dtype.has_value());
    if (view.ok()) {
      ++supported;
      EXPECT_EQ(view->bytes(), tensor.bytes);
      EXPECT_EQ(GgmlNumberOf(view->dtype()), number);
    } else {
      EXPECT_EQ(view.code(), StatusCode::kRefused);
      const std::string words = std::string("tensor type ") + std::string(type->name) + " (" +
                                std::to_string(number) + ") is not supported yet; supported: F32";
      EXPECT_NE(view.message().find(words), std::string::npos) << view.message();
    }
  }
  EXPECT_GE(supported, 12);
  EXPECT_FALSE(GgmlType(43).has_value());
  EXPECT_FALSE(GgmlNumberOf(DType::kF8E4M3).has_value());
}

// All value types, hand-encoded.
class GgufValues : public testing::Test {
 protected:
  static std::string Array(GgufType type, uint64_t count, std::string_view elements) {
    return test::Raw(static_cast<uint32_t>(type)) + test::Raw(count) + std::string(elements);
  }
  void Add(std::string_view key, GgufType type, std::string_view encoded) {
    keys_ += GgufText::Key(key, type, encoded);
    ++count_;
  }
  const GgufMetadata& Open(uint32_t version = 3) {
    const std::string path = dir_.Write("v.gguf", GgufText::Start(0, count_, version) + keys_);
    checkpoint_ = OpenOrDie(path);
    return *checkpoint_->gguf();
  }

 private:
  TempDir dir_;
  std::string keys_;
  uint64_t count_ = 0;
  std::unique_ptr<Checkpoint> checkpoint_;
};

TEST_F(GgufValues, Scalars) {
  Add("u8", GgufType::kUint8, test::Raw(uint8_t{255}));
  Add("i8", GgufType::kInt8, test::Raw(int8_t{-128}));
  Add("u16", GgufType::kUint16, test::Raw(uint16_t{65535}));
  Add("i16", GgufType::kInt16, test::Raw(int16_t{-32768}));
  Add("u32", GgufType::kUint32, test::Raw(uint32_t{4294967295u}));
  Add("i32", GgufType::kInt32, test::Raw(int32_t{-2147483647}));
  Add("u64", GgufType::kUint64, test::Raw(uint64_t{1} << 63));
  Add("i64", GgufType::kInt64, test::Raw(int64_t{-9000000000}));
  Add("f32", GgufType::kFloat32, test::Raw(0.5f));
  Add("f64", GgufType::kFloat64, test::Raw(1e300));
  Add("yes", GgufType::kBool, "\x01");
  Add("text", GgufType::kString, GgufText::String(std::string_view("a\0b", 3)));
  for (const uint32_t version : {2u, 3u}) {
    const GgufMetadata& m = Open(version);
    EXPECT_EQ(m.version(), version);
    EXPECT_EQ(*m.Int("u8"), 255);
    EXPECT_EQ(*m.Int("i8"), -128);
    EXPECT_EQ(*m.Int("u16"), 65535);
    EXPECT_EQ(*m.Int("i16"), -32768);
    EXPECT_EQ(*m.Int("u32"), 4294967295);
    EXPECT_EQ(*m.Int("i32"), -2147483647);
    EXPECT_EQ(*m.Int("i64"), -9000000000);
    EXPECT_EQ(m.Int("u64").code(), StatusCode::kRefused);  // does not fit, never wraps
    EXPECT_EQ(*m.Float("u64"), 9223372036854775808.0);
    EXPECT_EQ(*m.Float("f32"), 0.5);
    EXPECT_EQ(*m.Float("f64"), 1e300);
    EXPECT_TRUE(*m.Bool("yes"));
    EXPECT_EQ(*m.String("text"), std::string_view("a\0b", 3));
  }
}

TEST_F(GgufValues, KindsAreNeverConvertedSilently) {
  Add("text", GgufType::kString, GgufText::String("7"));
  Add("f32", GgufType::kFloat32, test::Raw(7.0f));
  Add("i32", GgufType::kInt32, test::Raw(int32_t{1}));
  Add("ints", GgufType::kArray,
      Array(GgufType::kInt32, 2, test::Raw(int32_t{1}) + test::Raw(int32_t{2})));
  const GgufMetadata& m = Open();
  const Status text = m.Int("text").status();
  EXPECT_EQ(text.code(), StatusCode::kRefused);
  for (const char* word : {"v.gguf", "\"text\"", "is string", "expected an integer"}) {
    EXPECT_NE(text.message().find(word), std::string::npos) << text.message();
  }
  EXPECT_FALSE(m.Int("f32").ok());
  EXPECT_FALSE(m.Bool("i32").ok());
  EXPECT_FALSE(m.String("i32").ok());
  EXPECT_FALSE(m.Ints("i32").ok());
  EXPECT_FALSE(m.Int("ints").ok());
  EXPECT_FALSE(m.Bools("ints").ok());
  EXPECT_NE(m.Strings("ints").message().find("array of 2 int32"), std::string::npos);
  EXPECT_EQ(*m.Floats("ints"), (std::vector<double>{1, 2}));
}

TEST_F(GgufValues, AbsentKeysNameTheNearOnes) {
  Add("llama.block_count", GgufType::kUint32, test::Raw(uint32_t{2}));
  const GgufMetadata& m = Open();
  const auto absent = m.Int("llama.blok_count");
  EXPECT_EQ(absent.code(), StatusCode::kRefused);
  EXPECT_NE(absent.message().find("near: llama.block_count"), std::string::npos)
      << absent.message();
}

TEST_F(GgufValues, PerLayerIsScalarOrArray) {
  Add("one", GgufType::kUint32, test::Raw(uint32_t{8}));
  Add("many", GgufType::kArray,
      Array(GgufType::kInt32, 3,
            test::Raw(int32_t{8}) + test::Raw(int32_t{4}) + test::Raw(int32_t{2})));
  Add("flags", GgufType::kArray, Array(GgufType::kBool, 3, std::string_view("\1\0\1", 3)));
  const GgufMetadata& m = Open();
  EXPECT_EQ(*m.IntsPerLayer("one", 3), (std::vector<int64_t>{8, 8, 8}));
  EXPECT_EQ(*m.IntsPerLayer("many", 3), (std::vector<int64_t>{8, 4, 2}));
  EXPECT_EQ(*m.FloatsPerLayer("many", 3), (std::vector<double>{8, 4, 2}));
  EXPECT_EQ(*m.BoolsPerLayer("flags", 3), (std::vector<bool>{true, false, true}));
  const auto wrong = m.IntsPerLayer("many", 4);
  EXPECT_EQ(wrong.code(), StatusCode::kRefused);
  EXPECT_NE(wrong.message().find("3 values, the model has 4 layers"), std::string::npos);
}

TEST_F(GgufValues, NestedAndEmptyArrays) {
  const std::string inner1 =
      Array(GgufType::kString, 2, GgufText::String("a") + GgufText::String("bc"));
  const std::string inner2 = Array(GgufType::kString, 0, "");
  const std::string inner3 = Array(GgufType::kUint8, 3, "\x01\x02\x03");
  Add("nested", GgufType::kArray, Array(GgufType::kArray, 3, inner1 + inner2 + inner3));
  Add("empty", GgufType::kArray, Array(GgufType::kFloat64, 0, ""));
  const GgufMetadata& m = Open();
  const auto outer = m.Find("nested")->AsArray();
  ASSERT_TRUE(outer.has_value());
  ASSERT_EQ(outer->size(), 3u);
  EXPECT_EQ(*(*outer)[0].AsStrings(), (std::vector<std::string_view>{"a", "bc"}));
  EXPECT_EQ((*outer)[1].AsStrings()->size(), 0u);
  EXPECT_EQ(*(*outer)[2].AsInts(), (std::vector<int64_t>{1, 2, 3}));
  EXPECT_FALSE(m.Ints("nested").ok());
  EXPECT_FALSE(m.Strings("nested").ok());
  EXPECT_EQ(m.Ints("empty")->size(), 0u);
  EXPECT_EQ(m.Strings("empty")->size(), 0u);
}

TEST_F(GgufValues, AlignmentIsHonoured) {
  TempDir dir;
  const std::string header =
      GgufText::Start(2, 1) +
      GgufText::Key("general.alignment", GgufType::kUint32, test::Raw(uint32_t{128})) +
      GgufText::Tensor("a", {8}, 0, 0) + GgufText::Tensor("b", {8}, 0, 128);
  const auto checkpoint = OpenOrDie(dir.Write("a.gguf", GgufText::WithData(header, 160, 128)));
  EXPECT_EQ(checkpoint->FindTensor("a")->offset % 128, 0);
  EXPECT_EQ(checkpoint->FindTensor("b")->offset - checkpoint->FindTensor("a")->offset, 128);
}

TEST(Gguf, LargeFilesOpenWithoutQuadraticWork) {
  constexpr int kTokens = 256'000;
  constexpr int kTensors = 46'000;
  TempDir dir;
  std::string tokens = test::Raw(uint32_t{8}) + test::Raw(uint64_t{kTokens});
  for (int i = 0; i < kTokens; ++i) tokens += GgufText::String("tok" + std::to_string(i));
  std::string header = GgufText::Start(kTensors, 1) +
                       GgufText::Key("tokenizer.ggml.tokens", GgufType::kArray, tokens);
  for (int i = 0; i < kTensors; ++i) {
    header += GgufText::Tensor("blk." + std::to_string(i) + ".weight", {8}, 0, 0);
  }
  const std::string path = dir.Write("large.gguf", GgufText::WithData(header, 32));
  const auto start = std::chrono::steady_clock::now();
  const auto checkpoint = OpenOrDie(path);
  for (int i = 0; i < kTensors; ++i) {
    ASSERT_NE(checkpoint->FindTensor("blk." + std::to_string(i) + ".weight"), nullptr);
  }
  EXPECT_EQ((*checkpoint->gguf()->Strings("tokenizer.ggml.tokens"))[255'999], "tok255999");
  // A scan instead of a hash would take minutes; sanitizers and busy machines stay far below.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST(Gguf, SmolLm2) {
  const char* path = std::getenv("TENON_TEST_MODEL");
  if (path == nullptr) GTEST_SKIP() << "TENON_TEST_MODEL (the SmolLM2 GGUF) is not set";
  const auto checkpoint = OpenOrDie(path);
  EXPECT_EQ(checkpoint->tensors().size(), 272u);
  const ExpectedTensor expected[] = {
      {"token_embd.weight", "Q8_0", {49152, 576}, 1785664, 30081024},
      {"blk.10.ffn_up.weight", "Q4_1", {1536, 576}, 37407808, 552960},
      {"output_norm.weight", "F32", {576}, 98360128, 2304},
  };
  ExpectTensors(*checkpoint, expected);
  const auto tokens = *checkpoint->gguf()->Strings("tokenizer.ggml.tokens");
  ASSERT_EQ(tokens.size(), 49152u);
  EXPECT_EQ(tokens[49151], "ectable");
  const auto merges = *checkpoint->gguf()->Strings("tokenizer.ggml.merges");
  ASSERT_EQ(merges.size(), 48900u);
  EXPECT_EQ(merges[48899], "ect able");
  size_t bytes = 0;
  for (const std::string_view token : tokens) bytes += token.size();
  EXPECT_EQ(bytes, 369170u);
}

}  // namespace
}  // namespace tenon
