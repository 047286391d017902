// The way back: canonical tensors to stored ones gives the file's own names, shapes and bytes.
#include "tenon/checkpoint/stored_plan.h"

#include <gtest/gtest.h>

#include <cstring>

#include "checkpoint/fixtures.h"
#include "checkpoint/names.h"

namespace tenon {
namespace {

using test::OpenOrDie;

std::vector<CanonicalTensor> AllOf(const TensorIndex& index) {
  std::vector<CanonicalTensor> tensors;
  for (const IndexedTensor& tensor : index.tensors()) {
    tensors.push_back({std::string(tensor.name), tensor.dtype, tensor.shape});
  }
  return tensors;
}

// Reads every canonical tensor of a file and puts the stored ones together again.
void ExpectRestored(const std::string& path, const NameTable& table) {
  const auto checkpoint = OpenOrDie(path);
  const auto index = TensorIndex::Build(*checkpoint, table);
  ASSERT_TRUE(index.ok()) << index.message();
  const auto plans = PlanStored(AllOf(*index), table);
  ASSERT_TRUE(plans.ok()) << plans.message();
  ASSERT_EQ(plans->size(), checkpoint->tensors().size());
  for (size_t i = 0; i < plans->size(); ++i) {
    const StoredPlan& plan = (*plans)[i];
    const StoredTensor& stored = checkpoint->tensors()[i];
    EXPECT_EQ(plan.name, stored.name);
    EXPECT_EQ(plan.shape, stored.shape);
    const auto assembled = AssembleStored(
        plan, [&](std::string_view name) { return LoadTensor(*checkpoint, *index->Find(name)); });
    ASSERT_TRUE(assembled.ok()) << assembled.message();
    const TensorView original = *checkpoint->MapTensor(stored);
    ASSERT_EQ(assembled->view.bytes(), original.bytes());
    EXPECT_EQ(
        std::memcmp(assembled->view.data(), original.data(), static_cast<size_t>(original.bytes())),
        0)
        << plan.name;
  }
}

TEST(StoredPlan, PermutedLlamaComesBack) {
  ExpectRestored(test::DataPath("goldens_gguf/llama_f16.gguf"), test::GgufNames(4, 2, true));
  ExpectRestored(test::DataPath("goldens_gguf/llama_q4_0.gguf"), test::GgufNames(4, 2, true));
}

TEST(StoredPlan, StackedExpertsComeBack) {
  ExpectRestored(test::DataPath("goldens_gguf/qwen3moe_q8_0.gguf"), test::GgufNames(4, 2, false));
}

TEST(StoredPlan, FusedAndTransposedComesBack) {
  NameTable
      table;  // as GPT-2 fuses q, k, v: [in, q | k | v]; here of any matrix that has 64 columns
  for (int i = 0; i < 3; ++i) {
    table.Add("layers.{}.part" + std::to_string(i) + ".weight",
              "model.layers.{}.self_attn.q_proj.weight",
              {TransformStep::Transpose(), TransformStep::RowPart({32, 16, 16}, i)});
  }
  ExpectRestored(test::DataPath("goldens/llama"), table);
}

class PlanErrors : public testing::Test {
 protected:
  void Expect(std::vector<CanonicalTensor> tensors, std::initializer_list<const char*> words) {
    const auto plans = PlanStored(tensors, table_);
    ASSERT_FALSE(plans.ok());
    EXPECT_EQ(plans.code(), StatusCode::kRefused);
    for (const char* word : words) {
      EXPECT_NE(plans.message().find(word), std::string::npos) << plans.message();
    }
  }
  static CanonicalTensor Expert(int e, Shape shape = {4, 32}, DType dtype = DType::kF32) {
    return {"model.layers.0.mlp.experts." + std::to_string(e) + ".up_proj.weight", dtype, shape};
  }
  NameTable table_ = test::GgufNames(4, 2, true);
};

TEST_F(PlanErrors, MissingSlice) {
  Expect({Expert(0), Expert(2)}, {"blk.0.ffn_up_exps.weight", "experts.1.up_proj", "not given"});
}

TEST_F(PlanErrors, Repeated) { Expect({Expert(0), Expert(0)}, {"experts.0", "twice"}); }

TEST_F(PlanErrors, DifferentTypesOrShapes) {
  Expect({Expert(0), Expert(1, {4, 32}, DType::kQ8_0)}, {"experts.0", "f32", "experts.1", "q8_0"});
  Expect({Expert(0), Expert(1, {5, 32})}, {"[2, 4, 32]", "[2, 5, 32]"});
}

TEST_F(PlanErrors, ShapeDoesNotFit) {
  Expect({{"model.layers.0.self_attn.q_proj.weight", DType::kF32, {10, 4}}},
         {"blk.0.attn_q.weight", "10 rows", "4 heads"});
  Expect({{"plain", DType::kQ4_0, {2, 33}}}, {"plain", "whole blocks"});
}

TEST_F(PlanErrors, MissingPart) {
  NameTable table;
  table.Add("q", "qkv", {TransformStep::RowPart({4, 2, 2}, 0)})
      .Add("k", "qkv", {TransformStep::RowPart({4, 2, 2}, 1)})
      .Add("v", "qkv", {TransformStep::RowPart({4, 2, 2}, 2)});
  const auto plans = PlanStored(
      std::vector<CanonicalTensor>{{"q", DType::kF32, {4, 8}}, {"v", DType::kF32, {2, 8}}}, table);
  EXPECT_EQ(plans.code(), StatusCode::kRefused);
  EXPECT_NE(plans.message().find("needs \"k\""), std::string::npos) << plans.message();
}

}  // namespace
}  // namespace tenon
