// sym4: a quantisation method outside tenon's tree. Beside X.weight, u8 [rows, cols / 2] with two
// numbers of four bits each (the even column low, 8 stands for 0), lies X.scales, [rows, cols /
// 32]. That is what Q4_0 blocks hold in another order, so the weights are brought into it when they
// are loaded, and tenon's own products compute from the four bits.
#include <cstring>

#include "tenon/numeric/codecs.h"
#include "tenon/registry/plugin.h"
#include "tenon/registry/registry.h"

namespace {

using namespace tenon;

constexpr int64_t kGroup = 32;                   // columns that share a scale
constexpr int64_t kBlockBytes = 2 + kGroup / 2;  // of Q4_0: an fp16 scale, then columns 0-15 low

class Sym4 final : public LinearMethod {
 public:
  void Declare(LoadContext& context, Module& owner, WeightMatrix& m) const override {
    if (m.cols % kGroup != 0) {
      context.Error(m.path + ": sym4 wants columns in groups of 32; fix: exclude the layer");
      return;
    }
    m.weight = &owner.AddParameter(context, m.path + ".weight", {m.rows, m.cols / 2},
                                   Parameter::Form::kAsStored, DType::kU8);
    m.scales = &owner.AddParameter(context, m.path + ".scales", {m.rows, m.cols / kGroup},
                                   Parameter::Form::kFloat32);
  }

  MatrixRef Matrix(const WeightMatrix& m) const override {
    MatrixRef matrix;
    matrix.data = m.decoded.data();  // null on meta
    matrix.dtype = DType::kQ4_0;
    matrix.rows = m.rows;
    matrix.cols = m.cols;
    matrix.row_bytes = RowBytes(DType::kQ4_0, m.cols);
    if (m.weight != nullptr) matrix.compute = m.weight->compute();
    return matrix;
  }

  int64_t DecodedBytes(const WeightMatrix& m) const override {
    return m.rows * RowBytes(DType::kQ4_0, m.cols);
  }

  Status Decode(const WeightMatrix& m, std::span<std::byte> out) const override {
    const std::byte* pairs = m.weight->view().data();
    const float* scales = m.scales->floats();
    std::byte* block = out.data();
    for (int64_t g = 0; g < m.rows * m.cols / kGroup; ++g, pairs += kGroup / 2) {
      const uint16_t scale = FloatToF16(scales[g]);
      std::memcpy(block, &scale, sizeof scale);
      const auto number = [&](int64_t i) {
        return i % 2 == 0 ? pairs[i / 2] & std::byte{15} : pairs[i / 2] >> 4;
      };
      for (int64_t i = 0; i < kGroup / 2; ++i) {
        block[2 + i] = number(i) | number(i + kGroup / 2) << 4;
      }
      block += kBlockBytes;
    }
    return {};
  }
};

// {"quant_method": "sym4", "exclude": ["lm_head", ...]}: all layers but those.
Result<QuantRules> Read(const QuantConfig& config) {
  QuantRules rules;
  rules.global.method = "sym4";
  rules.global.codes = DType::kU8;
  rules.global.scale_names = {"scales"};
  const Json* exclude = config.settings.Find("exclude");
  if (exclude == nullptr || !exclude->is_array()) return Refused("'exclude' must be a list");
  for (const Json& name : exclude->as_array()) {
    if (!name.is_string()) return Refused("exclude = " + name.Dump() + ", must be names");
    rules.excludes.push_back({name.as_string(), QuantKey::Match::kParts});
  }
  return rules;
}

Status Register(Registrar& registrar) {
  registrar.QuantMethod(
      {.name = "sym4", .read = Read, .linear_methods = {{"sym4", std::make_shared<Sym4>()}}});
  return {};
}

}  // namespace

TN_PLUGIN(Register);
