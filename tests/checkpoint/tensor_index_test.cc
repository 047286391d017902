#include "tenon/checkpoint/tensor_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "checkpoint/fixtures.h"
#include "checkpoint/names.h"

namespace tenon {
namespace {

using test::Entry;
using test::OpenOrDie;
using test::TempDir;

TensorIndex Build(const Checkpoint& checkpoint, NameTable table) {
  auto index = TensorIndex::Build(checkpoint, std::move(table));
  TN_CHECK(index.ok(), index.message().c_str());
  return *std::move(index);
}

TEST(TensorIndex, HuggingFaceNamesNeedNoTable) {
  const auto checkpoint = OpenOrDie(test::DataPath("goldens/llama"));
  const TensorIndex index = Build(*checkpoint, {});
  EXPECT_EQ(index.tensors().size(), checkpoint->tensors().size());
  const IndexedTensor* tensor = index.Find("model.layers.1.mlp.up_proj.weight");
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(tensor->shape, Shape({100, 64}));
  EXPECT_EQ(tensor->dtype, DType::kBF16);
  EXPECT_EQ(tensor->unsupported, "");
  const auto loaded = LoadTensor(*checkpoint, *tensor);
  EXPECT_TRUE(loaded->zero_copy);
  EXPECT_EQ(loaded->view.data(), checkpoint->MapTensor(*tensor->stored)->data());
}

TEST(TensorIndex, GgufUnderCanonicalNames) {
  const auto checkpoint = OpenOrDie(test::DataPath("goldens_gguf/llama_f16.gguf"));
  const TensorIndex index = Build(*checkpoint, test::GgufNames(4, 2, true));
  const IndexedTensor* q = index.Find("model.layers.0.self_attn.q_proj.weight");
  ASSERT_NE(q, nullptr);
  EXPECT_EQ(index.StoredNameOf(q->name), "blk.0.attn_q.weight");
  EXPECT_EQ(index.StoredNameOf("no.such"), "");
  const auto loaded = LoadTensor(*checkpoint, *q);
  EXPECT_FALSE(loaded->zero_copy);
  EXPECT_EQ(test::Fnv(loaded->view), 0x1284bfca71427d64u);  // numpy
  const auto v = LoadTensor(*checkpoint, *index.Find("model.layers.0.self_attn.v_proj.weight"));
  EXPECT_TRUE(v->zero_copy);
}

TEST(TensorIndex, ExpertsOfAStackAreZeroCopy) {
  const auto checkpoint = OpenOrDie(test::DataPath("goldens_gguf/qwen3moe_q8_0.gguf"));
  const TensorIndex index = Build(*checkpoint, test::GgufNames(4, 2, false));
  EXPECT_EQ(index.tensors().size(), 27u - 6 + 6 * 4);
  const IndexedTensor* expert = index.Find("model.layers.1.mlp.experts.2.up_proj.weight");
  ASSERT_NE(expert, nullptr);
  EXPECT_EQ(expert->shape, Shape({64, 128}));
  const auto loaded = LoadTensor(*checkpoint, *expert);
  EXPECT_TRUE(loaded->zero_copy);
  EXPECT_EQ(test::Fnv(loaded->view), 0x5a170439e832d24cu);  // numpy
  EXPECT_EQ(index.Find("model.layers.1.mlp.experts.4.up_proj.weight"), nullptr);
}

TEST(TensorIndex, LoadedTensorsOutliveTheCheckpoint) {
  auto checkpoint = OpenOrDie(test::DataPath("goldens_gguf/llama_f16.gguf"));
  LoadedTensor loaded;
  {
    const TensorIndex index = Build(*checkpoint, {});
    loaded = *LoadTensor(*checkpoint, *index.Find("output_norm.weight"));
  }
  checkpoint.reset();
  EXPECT_EQ(test::Fnv(loaded.view), 0x2ae2683c82ed7cf9u);
}

TEST(TensorIndex, MisalignedDataIsCopied) {
  TempDir dir;
  // F32 at an odd address, BF16 at an even one that is no multiple of four.
  const std::string header = "{" + Entry("bytes", "U8", "[1]", "0", "1") + "," +
                             Entry("odd", "F32", "[2]", "1", "9") + "," +
                             Entry("even", "BF16", "[2]", "10", "14") + "}";
  std::string padded = header;
  padded.resize((header.size() + 7) / 8 * 8, ' ');
  std::string file = test::SafetensorsBytes(padded, 0);
  file += std::string(1, '\7') + test::Raw(1.5f) + test::Raw(-2.0f) + std::string(5, '\0');
  const auto checkpoint = OpenOrDie(dir.Write("m.safetensors", file));
  const TensorIndex index = Build(*checkpoint, {});
  const auto odd = LoadTensor(*checkpoint, *index.Find("odd"));
  EXPECT_FALSE(odd->zero_copy);
  EXPECT_EQ(odd->view.as<float>()[0], 1.5f);
  EXPECT_EQ(odd->view.as<float>()[1], -2.0f);
  EXPECT_TRUE(LoadTensor(*checkpoint, *index.Find("even"))->zero_copy);
  EXPECT_TRUE(LoadTensor(*checkpoint, *index.Find("bytes"))->zero_copy);
}

TEST(TensorIndex, Bookkeeping) {
  const auto checkpoint = OpenOrDie(test::DataPath("goldens_gguf/qwen3moe_q8_0.gguf"));
  const TensorIndex index = Build(*checkpoint, test::GgufNames(4, 2, false));
  EXPECT_EQ(index.UnusedStored().size(), 27u);
  EXPECT_TRUE(index.MarkUsed("model.layers.0.mlp.experts.1.up_proj.weight").ok());
  index.MarkUsed(*index.Find("lm_head.weight"));
  EXPECT_TRUE(index.IsUsed(*index.Find("lm_head.weight")));
  EXPECT_FALSE(index.IsUsed(*index.Find("model.norm.weight")));
  const auto unused = index.UnusedStored();
  EXPECT_EQ(unused.size(), 25u);
  EXPECT_TRUE(std::none_of(unused.begin(), unused.end(), [](const StoredTensor* tensor) {
    return tensor->name == "output.weight" || tensor->name == "blk.0.ffn_up_exps.weight";
  }));
  EXPECT_EQ(index.UnusedCanonical().size(), index.tensors().size() - 2);
  const Status unknown = index.MarkUsed("model.layers.1.self_attn.q_porj.weight");
  EXPECT_EQ(unknown.code(), StatusCode::kNotFound);
  EXPECT_NE(unknown.message().find("model.layers.1.self_attn.q_proj.weight"), std::string::npos);
}

TEST(TensorIndex, NearNamesKeepTheNumbers) {
  const auto checkpoint = OpenOrDie(test::DataPath("goldens/llama"));
  const TensorIndex index = Build(*checkpoint, {});
  EXPECT_EQ(index.NearNames("model.layers.1.self_attn.qq_proj.weight", 1),
            std::vector<std::string>{"model.layers.1.self_attn.q_proj.weight"});
  // Layer 77 does not exist: some layer that does.
  const auto near = index.NearNames("model.layers.77.mlp.up_proj.weight", 1);
  ASSERT_EQ(near.size(), 1u);
  EXPECT_TRUE(near[0].ends_with(".mlp.up_proj.weight"));
  EXPECT_NE(index.Find(near[0]), nullptr);
  EXPECT_TRUE(index.NearNames("something.entirely.different").empty());
}

TEST(TensorIndex, TwoStoredTensorsForOneName) {
  TempDir dir;
  const auto checkpoint = OpenOrDie(dir.Write(
      "m.safetensors", test::SafetensorsBytes("{" + Entry("module.a", "U8", "[4]", "0", "4") + "," +
                                                  Entry("a", "U8", "[4]", "0", "4") + "}",
                                              4)));
  const auto index = TensorIndex::Build(*checkpoint, NameTable().WrapperPrefixes());
  EXPECT_EQ(index.code(), StatusCode::kRefused);
  for (const char* word : {"\"a\"", "\"module.a\"", "m.safetensors"}) {
    EXPECT_NE(index.message().find(word), std::string::npos) << index.message();
  }
}

TEST(TensorIndex, ShapesThatDoNotFitTheTable) {
  const auto checkpoint = OpenOrDie(test::DataPath("goldens_gguf/llama_f16.gguf"));
  const auto index = TensorIndex::Build(*checkpoint, test::GgufNames(5, 2, true));
  EXPECT_EQ(index.code(), StatusCode::kRefused);
  for (const char* word : {"llama_f16.gguf", "blk.0.attn_q.weight", "128 rows", "5 heads"}) {
    EXPECT_NE(index.message().find(word), std::string::npos) << index.message();
  }
}

TEST(TensorIndex, UnsupportedTypesAreIndexedAndRefusedOnLoad) {
  TempDir dir;
  using test::GgufText;
  const std::string header =
      GgufText::Start(2, 0) + GgufText::Tensor("blk.0.attn_q.weight", {256, 8}, 15, 0) +
      GgufText::Tensor("blk.0.ffn_up_exps.weight", {256, 4, 2}, 15, 0);  // Q8_K: no file has it
  const auto checkpoint = OpenOrDie(dir.Write("m.gguf", GgufText::WithData(header, 292 * 8)));
  const TensorIndex index = Build(*checkpoint, test::GgufNames(4, 2, true));
  const IndexedTensor* tensor = index.Find("model.layers.0.mlp.experts.1.up_proj.weight");
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(tensor->shape, Shape({4, 256}));
  EXPECT_NE(tensor->unsupported.find("Q8_K (15) is not supported yet"), std::string::npos);
  const auto loaded = LoadTensor(*checkpoint, *tensor);
  EXPECT_EQ(loaded.code(), StatusCode::kRefused);
  EXPECT_NE(loaded.message().find("Q8_K"), std::string::npos);
}

TEST(TensorIndex, HostileStackIsRefusedNotExpanded) {
  TempDir dir;
  const auto checkpoint = OpenOrDie(dir.Write(
      "m.safetensors",
      test::SafetensorsBytes(
          "{" + Entry("blk.0.ffn_up_exps.weight", "F32", "[1099511627776, 0]", "0", "0") + "}",
          0)));
  const auto index = TensorIndex::Build(*checkpoint, test::GgufNames(4, 2, false));
  EXPECT_EQ(index.code(), StatusCode::kRefused);
  EXPECT_NE(index.message().find("1099511627776 slices"), std::string::npos) << index.message();
}

TEST(TensorIndex, ManyExpertsAreFast) {
  using test::GgufText;
  constexpr int kLayers = 60;
  constexpr int kExperts = 256;
  TempDir dir;
  std::string header = GgufText::Start(3 * kLayers, 0);
  for (int layer = 0; layer < kLayers; ++layer) {
    for (const char* name : {"gate", "up", "down"}) {
      header += GgufText::Tensor("blk." + std::to_string(layer) + ".ffn_" + name + "_exps.weight",
                                 {4, 4, kExperts}, 0, 0);
    }
  }
  const auto checkpoint =
      OpenOrDie(dir.Write("m.gguf", GgufText::WithData(header, 4 * 4 * 4 * kExperts)));
  const auto start = std::chrono::steady_clock::now();
  const TensorIndex index = Build(*checkpoint, test::GgufNames(4, 2, false));
  EXPECT_EQ(index.tensors().size(), 46080u);
  for (int e = 0; e < kExperts; ++e) {
    EXPECT_TRUE(
        index.MarkUsed("model.layers.59.mlp.experts." + std::to_string(e) + ".up_proj.weight")
            .ok());
  }
  // As when a wrong config asks for hundreds of tensors that are not there.
  for (int i = 0; i < 200; ++i) {
    const auto near = index.NearNames("model.layers.3.mlp.experts.300.up_proj.weight");
    ASSERT_FALSE(near.empty());
    ASSERT_TRUE(near[0].ends_with(".up_proj.weight"));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

}  // namespace
}  // namespace tenon
