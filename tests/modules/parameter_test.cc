// Scopes, parameters and the collected errors: what a checkpoint may do wrong, and what each form
// of a weight holds.
#include "modules/bench.h"

namespace tenon {
namespace {

using test::ExpectWords;
using test::ModuleBench;

// One parameter under its own name.
class OneWeight final : public Module {
 public:
  OneWeight(const Scope& scope, const Shape& shape,
            Parameter::Form form = Parameter::Form::kFloat32)
      : Module(scope), shape_(shape), form_(form) {}
  void CreateWeights(LoadContext& context) override {
    parameter = &AddParameter(context, path(), shape_, form_);
    if (shape_.rank() == 2) meta = MetaMatrixOf(*parameter);
  }
  const Parameter* parameter = nullptr;
  MatrixRef meta;

 private:
  Shape shape_;
  Parameter::Form form_;
};

// The error of declaring `wanted` where the file has `stored`; empty: none.
std::string DeclareError(const Shape& stored, DType dtype, const Shape& wanted,
                         Container container = Container::kHuggingFace) {
  ModuleBench bench;
  bench.Put("a.weight", stored, dtype);
  bench.Open(container);
  const OneWeight module(bench.At("a.weight"), wanted, Parameter::Form::kAsStored);
  return bench.Create().message();
}

TEST(Scope, Paths) {
  LoadContext context;
  const Scope root(context, "");
  EXPECT_EQ((root / "model").path(), "model");
  const Scope deep = root / "model" / "layers" / 12 / "mlp";
  EXPECT_EQ(deep.path(), "model.layers.12.mlp");
  EXPECT_EQ(deep.name(), "mlp");
  EXPECT_EQ(deep.Parent().path(), "model.layers.12");
  EXPECT_EQ(deep.Parent().name(), "12");
  EXPECT_EQ((root / "model").Parent().path(), "");
  EXPECT_EQ((root / "model").name(), "model");
  deep.Error("bad");
  EXPECT_EQ(context.Errors().message(), "model.layers.12.mlp: bad");
}

TEST(Modules, AreInTreeOrder) {
  ModuleBench bench;
  const OneWeight a(bench.At("x.b"), {1});
  const OneWeight b(bench.At("x.a"), {1});
  EXPECT_EQ(bench.context().modules,
            (std::vector<Module*>{const_cast<OneWeight*>(&a), const_cast<OneWeight*>(&b)}));
}

TEST(Parameter, AbsentGivesNearNames) {
  ModuleBench bench;
  bench.Put("model.layers.0.mlp.up_proj.weight", {2, 3});
  bench.Put("model.layers.1.mlp.up_proj.weight", {2, 3});
  bench.Open();
  const OneWeight module(bench.At("model.layers.1.mlp.upproj.weight"), {2, 3});
  const Status status = bench.Create();
  EXPECT_EQ(status.code(), StatusCode::kRefused);
  ExpectWords(status.message(), {"model.layers.1.mlp.upproj.weight: the checkpoint has no such",
                                 "nearest: ", "mlp.up_proj.weight", "fix: "});
}

TEST(Parameter, OfAnotherShape) {
  ExpectWords(DeclareError({3, 4}, DType::kF32, {4, 3}), {"a.weight", "[3, 4]", "[4, 3]", "fix:"});
  ExpectWords(DeclareError({3, 4}, DType::kF32, {3, 5}), {"[3, 4]", "[3, 5]"});
  ExpectWords(DeclareError({12}, DType::kBF16, {3, 4}), {"[12]", "[3, 4]"});
  ExpectWords(DeclareError({}, DType::kF32, {2}), {"[]", "[2]"});
}

TEST(Parameter, SpellingsOfTheSameShape) {
  EXPECT_EQ(DeclareError({1, 6}, DType::kF32, {6}), "");
  EXPECT_EQ(DeclareError({5, 1, 4}, DType::kF32, {5, 4}), "");
  EXPECT_EQ(DeclareError({}, DType::kF32, {1}), "") << "one number is one number";
  EXPECT_EQ(DeclareError({1}, DType::kF32, {}), "");
}

TEST(Parameter, AScalarIsLoadedAsOneNumber) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    ModuleBench bench;
    bench.Put("a.weight", {}, dtype);
    bench.Open();
    const OneWeight module(bench.At("a.weight"), {1});
    bench.Load();
    EXPECT_EQ(module.parameter->held_bytes(), 4);
    EXPECT_EQ(module.parameter->floats()[0], bench.Of("a.weight")[0]);
  }
}

// A type whose rows are whole blocks, against a config whose rows are not.
TEST(Parameter, BlocksOfAnotherShape) {
  for (const DType dtype : {DType::kQ4_0, DType::kQ8_0, DType::kQ6_K}) {
    ExpectWords(DeclareError({2, 256}, dtype, {2, 100}, Container::kGguf),
                {"[2, 256]", "[2, 100]"});
    EXPECT_EQ(DeclareError({2, 256}, dtype, {2, 256}, Container::kGguf), "");
  }
}

// The error of declaring [2, 2] where a file of `bytes` bytes says `dtype`.
std::string ErrorOfType(std::string_view dtype, size_t bytes) {
  const test::TempDir directory;
  const std::string entry = test::Entry("a.weight", dtype, "[2,2]", "0", std::to_string(bytes));
  const std::string file = test::SafetensorsBytes("{" + entry + "}", bytes);
  ModuleBench bench;
  bench.OpenFile(directory.Write("model.safetensors", file));
  const OneWeight module(bench.At("a.weight"), {2, 2});
  return bench.Create().message();
}

TEST(Parameter, TypesThatAreNoWeights) {
  ExpectWords(ErrorOfType("I32", 16), {"a.weight", "i32", "allowed: floats and GGUF blocks"});
  ExpectWords(ErrorOfType("BOOL", 4), {"a.weight", "bool", "allowed: floats and GGUF blocks"});
  ExpectWords(ErrorOfType("F4", 2), {"a.weight", "F4"});
  EXPECT_EQ(ErrorOfType("F32", 16), "");
}

TEST(Parameter, VectorsAreWidenedAndMatricesStay) {
  ModuleBench bench;
  bench.Put("v", {6}, DType::kBF16);
  bench.Put("m", {2, 6}, DType::kF16);
  bench.Put("q", {3, 64}, DType::kQ8_0);
  bench.Open(Container::kGguf);
  const OneWeight v(bench.At("v"), {6}, Parameter::Form::kFloat32);
  const OneWeight m(bench.At("m"), {2, 6}, Parameter::Form::kAsStored);
  const OneWeight q(bench.At("q"), {3, 64}, Parameter::Form::kAsStored);
  bench.Load();
  EXPECT_EQ(v.parameter->dtype(), DType::kF32);
  EXPECT_EQ(v.parameter->stored_dtype(), DType::kBF16);
  EXPECT_EQ(v.parameter->held_bytes(), 6 * 4);
  EXPECT_EQ(std::vector<float>(v.parameter->floats(), v.parameter->floats() + 6), bench.Of("v"));
  EXPECT_EQ(m.parameter->dtype(), DType::kF16);
  EXPECT_EQ(m.parameter->held_bytes(), 2 * 6 * 2);
  EXPECT_TRUE(m.parameter->zero_copy());
  EXPECT_EQ(q.parameter->held_bytes(), 3 * 2 * 34);  // two blocks of 2 + 32 bytes in a row
  EXPECT_EQ(q.meta.row_bytes, 2 * 34);
  EXPECT_EQ(q.meta.data, nullptr) << "before loading there are no bytes";
}

TEST(Parameter, DeclaringMarksTheTensorAsUsed) {
  ModuleBench bench;
  bench.Put("used", {2});
  bench.Put("unused", {2});
  bench.Open();
  const OneWeight module(bench.At("used"), {2});
  ASSERT_TRUE(bench.Create().ok());
  const auto unused = bench.index().UnusedStored();
  ASSERT_EQ(unused.size(), 1u);
  EXPECT_EQ(unused[0]->name, "unused");
}

TEST(Parameter, WithoutAnIndexTheConfigsTypeCounts) {
  ModuleBench bench;
  bench.context().default_dtype = DType::kBF16;
  const OneWeight m(bench.At("m"), {3, 5}, Parameter::Form::kAsStored);
  const OneWeight v(bench.At("v"), {5}, Parameter::Form::kFloat32);
  ASSERT_TRUE(bench.Create().ok());
  EXPECT_EQ(m.parameter->held_bytes(), 3 * 5 * 2);
  EXPECT_EQ(v.parameter->held_bytes(), 5 * 4);
  EXPECT_EQ(v.parameter->stored_dtype(), DType::kBF16);
}

TEST(LoadContext, CollectsAllErrorsAndShowsTheFirst) {
  LoadContext context;
  EXPECT_TRUE(context.Errors().ok());
  context.Error("e1");
  EXPECT_EQ(context.Errors().message(), "e1");
  for (int i = 2; i <= 12; ++i) context.Error("e" + std::to_string(i));
  EXPECT_EQ(context.Errors().message(),
            "12 problems:\n  e1\n  e2\n  e3\n  e4\n  e5\n  e6\n  e7\n  e8\n  e9\n  e10\n  e11\n"
            "  e12");
  context.Error("e13");
  context.Error("e14");
  EXPECT_EQ(context.Errors().code(), StatusCode::kRefused);
  ExpectWords(context.Errors().message(), {"14 problems:", "\n  e12\n  and 2 more"});
  EXPECT_EQ(context.Errors().message().find("e13"), std::string::npos);
}

TEST(LoadContext, ADecisionWithoutConsentIsAnError) {
  const auto downgrade = [](LoadContext& context) {
    context.Record({.field = "x.y",
                    .requested = "fast",
                    .resolved = "slow",
                    .by = "test",
                    .why = "no fast one",
                    .kind = DecisionKind::kDowngraded});
  };
  LoadContext strict;
  downgrade(strict);
  ExpectWords(strict.Errors().message(), {"x.y", "fast", "slow", "--allow-downgrade x.y"});
  LoadContext lenient;
  lenient.ledger = Ledger({"x.y"});
  downgrade(lenient);
  EXPECT_TRUE(lenient.Errors().ok());
  ASSERT_EQ(lenient.ledger.decisions().size(), 1u);
  EXPECT_EQ(lenient.ledger.decisions()[0].kind, DecisionKind::kDowngraded);
}

}  // namespace
}  // namespace tenon
