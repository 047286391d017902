// Hugging Face directories and bare safetensors files that are as they should be.
#include <gtest/gtest.h>

#include <algorithm>

#include "checkpoint/fixtures.h"
#include "tenon/checkpoint/stored_types.h"

namespace tenon {
namespace {

using test::OpenOrDie;
using test::TempDir;

// Expected: the header as Python's json module reads it.
TEST(HfCheckpoint, SingleFile) {
  const auto checkpoint = OpenOrDie(test::DataPath("goldens/llama"));
  EXPECT_EQ(checkpoint->container(), Container::kHuggingFace);
  EXPECT_EQ(checkpoint->gguf(), nullptr);
  const StoredTensor* tensor =
      checkpoint->FindTensor("model.layers.0.self_attn.rotary_emb.inv_freq");
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(tensor->dtype, DType::kBF16);
  EXPECT_EQ(tensor->type_name, "BF16");
  EXPECT_EQ(tensor->type_number, -1);
  EXPECT_TRUE(tensor->supported);
  EXPECT_EQ(tensor->shape, Shape({8}));
  EXPECT_EQ(tensor->bytes, 16);
  EXPECT_EQ(tensor->offset, 8 + 2368 + 128768);
  EXPECT_EQ(checkpoint->FindTensor("model.layers.0.mlp.down_proj.weight")->shape, Shape({64, 100}));
  EXPECT_EQ(checkpoint->FindTensor("model.layers.0.mlp.down_proj"), nullptr);
  ASSERT_NE(checkpoint->config(), nullptr);
  EXPECT_TRUE(checkpoint->config()->Find("architectures")->is_array());
  EXPECT_EQ(checkpoint->generation_config(), nullptr);
  // golden.safetensors is there and no part of the model.
  ASSERT_EQ(checkpoint->notes().size(), 1u);
  EXPECT_NE(checkpoint->notes()[0].find("golden.safetensors"), std::string::npos);
}

TEST(HfCheckpoint, Shards) {
  const auto checkpoint = OpenOrDie(test::DataPath("goldens/llama_tied_fp32_sharded"));
  EXPECT_EQ(checkpoint->files().size(), 4u);
  int64_t bytes = 0;
  for (const StoredTensor& tensor : checkpoint->tensors()) bytes += tensor.bytes;
  EXPECT_EQ(bytes, 216000);  // the index's total_size
  const auto file_of = [&](const char* name) {
    const StoredTensor* tensor = checkpoint->FindTensor(name);
    return checkpoint->files()[static_cast<size_t>(tensor->file)]->path();
  };
  EXPECT_TRUE(file_of("model.layers.0.mlp.up_proj.weight").ends_with("00002-of-00004.safetensors"));
  EXPECT_TRUE(file_of("model.embed_tokens.weight").ends_with("00001-of-00004.safetensors"));
}

TEST(HfCheckpoint, ShardsWithoutAnIndexAreAllUsed) {
  TempDir dir;
  test::CopyData("goldens/llama_tied_fp32_sharded", dir);
  std::filesystem::remove(dir / "model.safetensors.index.json");
  const auto checkpoint = OpenOrDie(dir.path());
  EXPECT_EQ(checkpoint->files().size(), 4u);
  EXPECT_NE(checkpoint->FindTensor("model.embed_tokens.weight"), nullptr);
  EXPECT_NE(checkpoint->notes()[0].find("index.json is absent"), std::string::npos);
}

TEST(HfCheckpoint, WholeModelWinsOverAnIndexThatDoesNotNameIt) {
  TempDir dir;
  test::CopyData("goldens/llama", dir);
  dir.Write("model.safetensors.index.json", R"({"weight_map": {"a": "model-1.safetensors"}})");
  const auto checkpoint = OpenOrDie(dir.path());
  EXPECT_EQ(checkpoint->files().size(), 1u);
  EXPECT_NE(checkpoint->FindTensor("model.embed_tokens.weight"), nullptr);
  EXPECT_TRUE(
      std::any_of(checkpoint->notes().begin(), checkpoint->notes().end(), [](const auto& n) {
        return n.find("not used: model.safetensors.index.json") != std::string::npos;
      }));
}

TEST(HfCheckpoint, BareFileHasTensorsAndNothingElse) {
  const auto checkpoint = OpenOrDie(test::DataPath("goldens_quant/q4_0.safetensors"));
  EXPECT_EQ(checkpoint->tensors().size(), 5u);
  EXPECT_EQ(checkpoint->config(), nullptr);
  EXPECT_FALSE(checkpoint->HasFile("q4_1.safetensors"));
  const StoredTensor* raw = checkpoint->FindTensor("raw");
  ASSERT_NE(raw, nullptr);
  EXPECT_EQ(raw->dtype, DType::kU8);
  EXPECT_EQ(raw->shape, Shape({4, 432}));
}

TEST(HfCheckpoint, OnlyATokenizerIsEnough) {
  TempDir dir;
  dir.Write("tokenizer.json", "{}");
  const auto checkpoint = OpenOrDie(dir.path());
  EXPECT_EQ(checkpoint->tensors().size(), 0u);
  EXPECT_TRUE(checkpoint->HasFile("tokenizer.json"));
  EXPECT_FALSE(checkpoint->HasFile("config.json"));
  EXPECT_EQ(*checkpoint->ReadSideFile("tokenizer.json"), "{}");
  EXPECT_EQ(checkpoint->ReadSideFile("chat_template.jinja").code(), StatusCode::kNotFound);
}

TEST(HfCheckpoint, SideFilesStayInsideTheDirectory) {
  TempDir dir;
  dir.Write("tokenizer.json", "{}");
  std::filesystem::create_directory(dir / "model");
  const auto checkpoint = OpenOrDie(dir.path());
  for (const char* name :
       {"../etc/passwd", "/etc/passwd", "model/../tokenizer.json", "", ".", "model"}) {
    EXPECT_FALSE(checkpoint->HasFile(name)) << name;
    EXPECT_FALSE(checkpoint->ReadSideFile(name).ok()) << name;
  }
}

TEST(HfCheckpoint, ConfigHoldsInfinity) {
  TempDir dir;
  dir.Write("config.json", R"({"time_step_limit": [0.0, Infinity]})");
  dir.Write("generation_config.json", R"({"eos_token_id": [1, 2]})");
  const auto checkpoint = OpenOrDie(dir.path());
  EXPECT_TRUE(checkpoint->config()->Find("time_step_limit")->as_array()[1].as_double() > 1e300);
  EXPECT_EQ(checkpoint->generation_config()->Find("eos_token_id")->as_array()[1].as_int(), 2);
}

TEST(HfCheckpoint, PartsDoNotNeedWeights) {
  TempDir dir;
  dir.Write("tokenizer.json", "{}");
  dir.Write("config.json", "{}");
  dir.Write("pytorch_model.bin", "PK\x03\x04");
  EXPECT_FALSE(Checkpoint::Open(dir.path()).ok());
  const auto checkpoint = OpenOrDie(dir.path(), OpenFor::kParts);
  EXPECT_EQ(checkpoint->tensors().size(), 0u);
  EXPECT_TRUE(checkpoint->HasFile("tokenizer.json"));
}

TEST(HfCheckpoint, EveryTypeNameOfTheFormat) {
  TempDir dir;
  std::string header = "{";
  const std::pair<const char*, int> types[] = {
      {"F64", 8},     {"F32", 4}, {"BF16", 2}, {"F16", 2}, {"F8_E4M3", 1}, {"F8_E5M2", 1},
      {"F8_E8M0", 1}, {"I64", 8}, {"I32", 4},  {"I16", 2}, {"I8", 1},      {"U64", 8},
      {"U32", 4},     {"U16", 2}, {"U8", 1},   {"BOOL", 1}};
  for (const auto& [name, bytes] : types) {
    header += test::Entry(name, name, "[3]", "0", std::to_string(3 * bytes)) + ",";
  }
  header.back() = '}';
  const auto checkpoint =
      OpenOrDie(dir.Write("types.safetensors", test::SafetensorsBytes(header, 24)));
  for (const auto& [name, bytes] : types) {
    const StoredTensor* tensor = checkpoint->FindTensor(name);
    ASSERT_NE(tensor, nullptr) << name;
    EXPECT_TRUE(tensor->supported) << name;
    EXPECT_EQ(InfoOf(tensor->dtype).block_bytes, bytes) << name;
    EXPECT_EQ(SafetensorsNameOf(tensor->dtype), name);
  }
}

}  // namespace
}  // namespace tenon
