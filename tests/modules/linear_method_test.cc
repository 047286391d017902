// Parameters of quantised weights: which tensors of the file they are, what products see of them,
// and what is missing or wrong. The numbers are held against those of the producers' own decoders.
#include "tenon/modules/linear_method.h"

#include <algorithm>

#include "modules/bench.h"
#include "tenon/config/quant_rules.h"
#include "tenon/modules/linear.h"
#include "tenon/modules/moe.h"
#include "tenon/modules/quantise.h"

namespace tenon {
namespace {

using test::ExpectWords;
using test::ModuleBench;

std::vector<std::byte> Codes(int64_t count, int first = 1) {
  std::vector<std::byte> codes(static_cast<size_t>(count));
  for (size_t i = 0; i < codes.size(); ++i) {
    codes[i] = static_cast<std::byte>((static_cast<int>(i) * 7 + first) % 120);
  }
  return codes;
}

QuantRules RulesOf(std::string_view settings) {
  const Result<Json> json = ParseJson(settings);
  TN_CHECK(json.ok(), json.message().c_str());
  Json config;
  config.Set("quantization_config", *json);
  ConfigReader reader(config);
  Result<QuantRules> rules = ReadQuantRules(ReadQuantConfig(reader, nullptr));
  TN_CHECK(rules.ok(), rules.message().c_str());
  return *std::move(rules);
}

constexpr const char* kBlocks = R"({"quant_method": "fp8", "weight_block_size": [128, 128]})";
constexpr const char* kPerTensor = R"({"quant_method": "fp8", "activation_scheme": "static"})";
constexpr const char* kInt8 = R"({"quant_method": "compressed-tensors", "format": "int-quantized",
    "config_groups": {"g": {"targets": ["Linear"],
      "weights": {"type": "int", "num_bits": 8, "strategy": "channel", "symmetric": true},
      "input_activations": {"type": "int", "num_bits": 8, "strategy": "token", "dynamic": true,
                            "symmetric": true}}}})";

// One linear [rows, cols] of the bench, quantised by the settings.
struct Bench : ModuleBench {
  void PutCodes(const std::string& name, const Shape& shape, DType dtype) {
    PutBytes(name, shape, dtype, Codes(shape.elements()));
  }
  Status Quantise(std::string_view settings) {
    rules = RulesOf(settings);
    QuantiseModules(context(), rules, {});
    return Create();
  }
  QuantRules rules;
};

TEST(LinearMethods, BlocksWithAPartialEnd) {
  Bench bench;
  bench.PutCodes("l.weight", {200, 300}, DType::kF8E4M3);
  bench.Put("l.weight_scale_inv", {2, 3});
  bench.Open();
  Linear linear(bench.At("l"), 300, 200);
  ASSERT_TRUE(bench.Quantise(kBlocks).ok());
  const MatrixRef meta = linear.matrices()[0];
  EXPECT_EQ(meta.data, nullptr);
  EXPECT_EQ(meta.dtype, DType::kF8E4M3);
  EXPECT_EQ(meta.scales.data, nullptr);
  EXPECT_EQ(meta.scales.rows, 128);
  EXPECT_EQ(meta.scales.cols, 128);
  EXPECT_EQ(meta.scales.stride, 3);
  EXPECT_EQ(meta.input, InputRounding::kNone);
  bench.Load();
  EXPECT_EQ(linear.matrices()[0].scales.data[5], bench.Of("l.weight_scale_inv")[5]);
  EXPECT_TRUE(bench.index().UnusedStored().empty());
  int64_t bytes = 0;
  for (const Parameter& p : linear.parameters()) bytes += p.held_bytes();
  EXPECT_EQ(bytes, 200 * 300 + 2 * 3 * 4) << "planned is what is held";
}

TEST(LinearMethods, ScalesOfRowsInBothShapesAndAllTypes) {
  const std::vector<std::pair<Shape, DType>> cases = {
      {{6}, DType::kF32}, {{6, 1}, DType::kF32}, {{6, 1}, DType::kBF16}, {{6}, DType::kF16}};
  for (const auto& [shape, dtype] : cases) {
    Bench bench;
    bench.PutCodes("l.weight", {6, 5}, DType::kI8);
    bench.Put("l.weight_scale", shape, dtype);
    bench.Open();
    Linear linear(bench.At("l"), 5, 6);
    ASSERT_TRUE(bench.Quantise(kInt8).ok()) << bench.context().Errors().message();
    bench.Load();
    const MatrixRef& matrix = linear.matrices()[0];
    EXPECT_EQ(matrix.dtype, DType::kI8);
    EXPECT_EQ(matrix.input, InputRounding::kInt8PerToken);
    EXPECT_EQ(matrix.scales.rows, 1);
    EXPECT_EQ(matrix.scales.cols, 5);
    EXPECT_EQ(matrix.scales.stride, 1);
    for (size_t r = 0; r < 6; ++r) {
      EXPECT_EQ(matrix.scales.data[r], bench.Of("l.weight_scale")[r]) << r;
    }
    std::vector<float> row(5);
    DecodeRow(matrix, 4, row.data());
    const auto code = static_cast<float>(Codes(30)[22]);  // row 4, column 2
    EXPECT_EQ(row[2], code * bench.Of("l.weight_scale")[4]);
  }
}

TEST(LinearMethods, OneScaleAndAnInputScaleThatNobodyNeeds) {
  for (const Shape& shape : {Shape{}, Shape{1}}) {
    Bench bench;
    bench.PutCodes("l.weight", {6, 5}, DType::kF8E4M3);
    bench.Put("l.weight_scale", shape);
    bench.Put("l.input_scale", shape);
    bench.Open();
    Linear linear(bench.At("l"), 5, 6);
    ASSERT_TRUE(bench.Quantise(kPerTensor).ok()) << bench.context().Errors().message();
    EXPECT_EQ(linear.matrices()[0].scales.rows, 6);
    EXPECT_EQ(linear.matrices()[0].scales.cols, 5);
    EXPECT_TRUE(bench.index().UnusedStored().empty());
    EXPECT_EQ(bench.context().idle_input_scales, 1);
  }
}

TEST(LinearMethods, ScalesAsPowersOfTwo) {
  Bench bench;
  bench.PutCodes("l.weight", {4, 200}, DType::kF8E4M3);
  bench.PutBytes("l.weight_scale_inv", {1, 2}, DType::kF8E8M0, {std::byte{127}, std::byte{120}});
  bench.Open();
  Linear linear(bench.At("l"), 200, 4);
  ASSERT_TRUE(bench.Quantise(kBlocks).ok()) << bench.context().Errors().message();
  bench.Load();
  EXPECT_EQ(linear.matrices()[0].scales.data[0], 1.0f);
  EXPECT_EQ(linear.matrices()[0].scales.data[1], 0.0078125f) << "2^(120 - 127)";
}

TEST(LinearMethods, SegmentsMayDiffer) {
  Bench bench;
  bench.PutCodes("a.q_proj.weight", {4, 6}, DType::kI8);
  bench.Put("a.q_proj.weight_scale", {4, 1});
  bench.Put("a.q_proj.bias", {4});
  bench.Put("a.k_proj.weight", {2, 6}, DType::kBF16);
  bench.Open();
  Linear linear(bench.At("a"), "qkv_proj", 6, {{"q_proj", 4, true}, {"k_proj", 2, false}});
  std::string settings(kInt8);
  settings.insert(settings.size() - 1, R"(, "ignore": ["a.k_proj"])");
  ASSERT_TRUE(bench.Quantise(settings).ok()) << bench.context().Errors().message();
  std::vector<std::string> paths;
  for (const Parameter& p : linear.parameters()) paths.push_back(p.path());
  EXPECT_EQ(paths, (std::vector<std::string>{"a.q_proj.weight", "a.q_proj.weight_scale",
                                             "a.q_proj.bias", "a.k_proj.weight"}));
  bench.Load();  // runs CreateWeights again
  EXPECT_EQ(linear.parameters().size(), 4u) << "declared once";
  EXPECT_EQ(linear.matrices()[0].bias[3], bench.Of("a.q_proj.bias")[3]);
  EXPECT_FALSE(linear.matrices()[1].scales.present());
  EXPECT_EQ(linear.matrices()[1].input, InputRounding::kNone);
}

TEST(LinearMethods, EveryExpertHasItsOwnScheme) {
  Bench bench;
  bench.Put("m.gate.weight", {2, 4});
  for (const char* expert : {"m.experts.0.", "m.experts.1."}) {
    for (const char* part : {"gate_proj", "up_proj", "down_proj"}) {
      const std::string name = std::string(expert) + part;
      const Shape shape = std::string_view(part) == "down_proj" ? Shape{4, 3} : Shape{3, 4};
      if (name == "m.experts.1.up_proj") {
        bench.Put(name + ".weight", shape);
        continue;
      }
      bench.PutCodes(name + ".weight", shape, DType::kF8E4M3);
      bench.Put(name + ".weight_scale_inv", {1, 1});
    }
  }
  bench.Open();
  MoeOptions options{.hidden = 4, .intermediate = 3};
  options.routing.experts = 2;
  Moe moe(bench.At("m"), options);
  std::string settings(kBlocks);
  settings.insert(settings.size() - 1, R"(, "ignored_layers": ["m.experts.1.up_proj"])");
  ASSERT_TRUE(bench.Quantise(settings).ok()) << bench.context().Errors().message();
  EXPECT_TRUE(bench.index().UnusedStored().empty());
  EXPECT_EQ(moe.parameters().size(), 11u);
  bench.Load();
  EXPECT_EQ(moe.parameters().size(), 11u);
}

// What the phases say of a linear [4, 6] whose tensors `put` adds.
std::string ErrorOf(std::string_view settings, const std::function<void(Bench&)>& put) {
  Bench bench;
  put(bench);
  bench.Open();
  const Linear linear(bench.At("l"), 6, 4);
  return bench.Quantise(settings).message();
}

TEST(LinearMethods, WhatIsMissingOrWrong) {
  const auto codes = [](Bench& bench) { bench.PutCodes("l.weight", {4, 6}, DType::kF8E4M3); };
  ExpectWords(ErrorOf(kBlocks, codes),
              {"l.weight: its scales are missing", "weight_scale_inv or weight_scale", "fix:"});
  ExpectWords(ErrorOf(kBlocks,
                      [&](Bench& bench) {
                        codes(bench);
                        bench.Put("l.weight_scale", {4, 1});
                      }),
              {"l.weight_scale: shape [4, 1] in the checkpoint", "the config says [1, 1]"});
  ExpectWords(ErrorOf(kBlocks,
                      [](Bench& bench) {
                        bench.Put("l.weight", {4, 6}, DType::kBF16);
                        bench.Put("l.weight_scale", {1, 1});
                      }),
              {"l.weight: stored as bf16, its quantisation wants f8_e4m3", "fix:", "excludes"});
  ExpectWords(ErrorOf(kBlocks,
                      [](Bench& bench) {
                        bench.PutCodes("l.weight", {4, 6}, DType::kI8);
                        bench.Put("l.weight_scale", {1, 1});
                      }),
              {"stored as i8, its quantisation wants f8_e4m3"});
}

TEST(LinearMethods, CodesInALayerThatIsNotQuantised) {
  for (const DType dtype : {DType::kF8E4M3, DType::kI8}) {
    Bench bench;
    bench.PutCodes("l.weight", {4, 6}, dtype);
    bench.Open();
    const Linear linear(bench.At("l"), 6, 4);
    ExpectWords(bench.Create().message(),
                {"l.weight: stored as", NameOf(dtype), "leaves this layer unquantised", "fix:"});
  }
}

TEST(LinearMethods, ATableThatKnowsAnother) {
  class Doubled final : public LinearMethod {
   public:
    void Declare(LoadContext& context, Module& owner, WeightMatrix& matrix) const override {
      matrix.weight =
          &owner.AddParameter(context, matrix.path + ".codes", {matrix.rows, 2 * matrix.cols},
                              Parameter::Form::kAsStored);
    }
    MatrixRef Matrix(const WeightMatrix& matrix) const override {
      return MetaMatrixOf(*matrix.weight);
    }
  };
  QuantRules rules = RulesOf(kBlocks);
  rules.global.method = "doubled";
  const auto created = [&](const LinearMethodTable& table) {
    ModuleBench bench;
    bench.Put("l.codes", {4, 12});
    bench.Open();
    bench.context().linear_methods = &table;
    Linear linear(bench.At("l"), 6, 4);
    QuantiseModules(bench.context(), rules, {});
    const Status status = bench.Create();
    return status.ok() ? linear.parameters()[0].path() : status.message();
  };
  LinearMethodTable table = LinearMethodTable::Builtin();
  EXPECT_EQ(created(table),
            "l: quantisation method = doubled, supports fp8, gguf, int8, mxfp4, plain");
  table.Add("doubled", std::make_shared<Doubled>());
  EXPECT_EQ(created(table), "l.codes");
}

constexpr const char* kMxfp4 = R"({"quant_method": "mxfp4"})";

// Every number of four bits times every power of two, the smallest of which are no normal numbers.
TEST(LinearMethods, Mxfp4HasEveryNumberExactly) {
  Bench bench;
  std::vector<std::byte> codes;
  std::vector<std::byte> scales;
  for (int r = 0; r < 256; ++r) {
    scales.push_back(static_cast<std::byte>(r));
    for (int c = 0; c < 16; ++c) codes.push_back(static_cast<std::byte>(c | (15 - c) << 4));
  }
  bench.PutBytes("l.weight_packed", {256, 16}, DType::kU8, codes);
  bench.PutBytes("l.weight_scale", {256, 1}, DType::kU8, scales);
  bench.Open();
  Linear linear(bench.At("l"), 32, 256);
  ASSERT_TRUE(bench.Quantise(kMxfp4).ok()) << bench.context().Errors().message();
  EXPECT_EQ(linear.matrices()[0].dtype, DType::kBF16);
  EXPECT_EQ(linear.derived_bytes(), 256 * 32 * 2);
  for (const Parameter& p : linear.parameters()) EXPECT_EQ(p.held_bytes(), 0);
  EXPECT_EQ(DecodingWindowBytes(bench.context()), 256 * 17);
  bench.Load();
  EXPECT_TRUE(bench.index().UnusedStored().empty());
  constexpr double kMagnitudes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  std::vector<float> row(32);
  for (int r = 0; r < 256; ++r) {
    DecodeRow(linear.matrices()[0], r, row.data());
    for (int c = 0; c < 32; ++c) {
      const int code = c % 2 == 0 ? c / 2 : 15 - c / 2;
      const double magnitude = std::ldexp(kMagnitudes[code % 8], r - 127);
      const auto expected = static_cast<float>(code < 8 ? magnitude : -magnitude);
      if (r == 255) {
        EXPECT_TRUE(std::isnan(row[static_cast<size_t>(c)]));
      } else {
        EXPECT_EQ(row[static_cast<size_t>(c)], expected) << r << " " << c;
      }
    }
  }
  for (Parameter& p : linear.parameters()) {
    p.Release();
    EXPECT_FALSE(p.loaded());
  }
  DecodeRow(linear.matrices()[0], 127, row.data());
  EXPECT_EQ(row[14], 6.0f) << "products read what was decoded";
}

TEST(LinearMethods, Mxfp4OfColumnsThatAreNoGroups) {
  Bench bench;
  bench.PutCodes("l.weight_packed", {2, 24}, DType::kU8);
  bench.Open();
  const Linear linear(bench.At("l"), 48, 2);
  ExpectWords(bench.Quantise(kMxfp4).message(), {"l: mxfp4", "groups of 32", "48", "fix:"});
}

// Stacked as published files have them, gate and up rows in turn.
TEST(LinearMethods, Mxfp4OfStackedExperts) {
  Bench bench;
  for (int part = 0; part < 2; ++part) {
    const Transform cut = {TransformStep::Slice(0, 0), TransformStep::RowPart({1, 1}, part, 48)};
    Transform merged = cut;
    merged.push_back(TransformStep::MergeLast(16));
    const std::string name = part == 0 ? "{}.gate." : "{}.up.";
    bench.names().Add(name + "weight_packed", "mlp.experts.gate_up_proj_blocks", merged);
    bench.names().Add(name + "weight_scale", "mlp.experts.gate_up_proj_scales", cut);
  }
  bench.OpenFile(test::DataPath("goldens_quant_hf/mxfp4_gptoss.safetensors"));
  Linear gate(bench.At("1.gate"), 256, 48);
  Linear up(bench.At("0.up"), 256, 48);
  ASSERT_TRUE(bench.Quantise(kMxfp4).ok()) << bench.context().Errors().message();
  bench.Load();
  const auto expected = bench.LoadTensor("golden.dequant");  // [2, 96, 256]
  const auto* numbers = expected.view.as<float>();
  std::vector<float> row(256);
  for (int64_t r = 0; r < 48; ++r) {
    DecodeRow(gate.matrices()[0], r, row.data());
    EXPECT_TRUE(std::equal(row.begin(), row.end(), numbers + (96 + 2 * r) * 256)) << r;
    DecodeRow(up.matrices()[0], r, row.data());
    EXPECT_TRUE(std::equal(row.begin(), row.end(), numbers + (2 * r + 1) * 256)) << r;
  }
}

// Files that the producers' own tools wrote, with the numbers of their own decoders.
TEST(LinearMethods, NumbersAreThoseOfTheProducersDecoders) {
  const std::string shared = test::SharedPath("goldens_quant_hf");
  if (shared.empty()) GTEST_SKIP() << "no shared files";
  for (const char* name :
       {"fp8_block_128", "fp8_block_128_exact", "fp8_block_128_ragged", "fp8_block_128_ue8m0",
        "fp8_tensor_static", "ct_fp8_channel", "ct_fp8_tensor", "ct_int8_w8a8"}) {
    const Result<Json> golden = ReadJsonFile(shared + "/" + name + ".json");
    ASSERT_TRUE(golden.ok()) << golden.message();
    Bench bench;
    bench.OpenFile(shared + "/" + name + ".safetensors");
    const IndexedTensor* dequant = bench.index().Find("golden.dequant");
    ASSERT_NE(dequant, nullptr) << name;
    const int64_t rows = dequant->shape.dim(0);
    const int64_t cols = dequant->shape.dim(1);
    Linear linear(bench.At("linear"), cols, rows);
    Json settings = *golden->Find("quantization_config");
    // Their list names a head, which these files do not have.
    for (const char* list : {"ignore", "ignored_layers", "modules_to_not_convert"}) {
      if (settings.Find(list) != nullptr) settings.Set(list, Json::Array{});
    }
    ASSERT_TRUE(bench.Quantise(settings.Dump()).ok()) << bench.context().Errors().message();
    bench.Load();
    const auto expected = bench.LoadTensor("golden.dequant");
    std::vector<float> row(static_cast<size_t>(cols));
    float worst = 0;
    for (int64_t r = 0; r < rows; ++r) {
      DecodeRow(linear.matrices()[0], r, row.data());
      for (int64_t c = 0; c < cols; ++c) {
        worst = std::max(
            worst, std::abs(row[static_cast<size_t>(c)] - expected.view.as<float>()[r * cols + c]));
      }
    }
    EXPECT_EQ(worst, 0) << name;
  }
}

}  // namespace
}  // namespace tenon
