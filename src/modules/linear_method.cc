#include "tenon/modules/linear_method.h"

#include <fmt/format.h>

#include "tenon/base/text.h"
#include "tenon/numeric/codecs.h"

namespace tenon {
namespace {

// On meta and after loading.
MatrixRef RefTo(const Parameter& weight) {
  return weight.loaded() ? MatrixOf(weight) : MetaMatrixOf(weight);
}

PartShape WeightPart(const WeightMatrix& matrix) {
  return {matrix.rows, matrix.cols, matrix.row_share, matrix.col_share};
}

// Numbers that need nothing beside them: plain floats, and the blocks of GGUF with their scales
// inside.
class SelfContained final : public LinearMethod {
 public:
  void Declare(LoadContext& context, Module& owner, WeightMatrix& matrix) const override {
    matrix.weight =
        &owner.AddParameter(context, matrix.path + ".weight", WeightPart(matrix), matrix.form);
  }
  MatrixRef Matrix(const WeightMatrix& matrix) const override { return RefTo(*matrix.weight); }
};

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Codes of one byte with fp32 numbers, one for a rectangle of them.
class ScaledCodes final : public LinearMethod {
 public:
  void Declare(LoadContext& context, Module& owner, WeightMatrix& matrix) const override {
    const QuantScheme& scheme = *matrix.scheme;
    matrix.weight = &owner.AddParameter(context, matrix.path + ".weight", WeightPart(matrix),
                                        matrix.form, scheme.codes);
    const std::string scales = NameOfScales(context, matrix);
    if (scales.empty() || !AreInOneOrder(context, matrix, scales) ||
        !SharesAreWholeBlocks(context, matrix)) {
      return;
    }
    matrix.scales =
        &owner.AddParameter(context, scales, ScaleShape(matrix), Parameter::Form::kFloat32);
    NoteInputScales(context, matrix);
  }

  MatrixRef Matrix(const WeightMatrix& matrix) const override {
    const QuantScheme& scheme = *matrix.scheme;
    MatrixRef ref = RefTo(*matrix.weight);
    if (matrix.scales == nullptr) return ref;
    ref.scales.data = matrix.scales->loaded() ? matrix.scales->floats() : nullptr;
    ref.scales.rows = scheme.block_rows > 0 ? scheme.block_rows : matrix.rows;
    ref.scales.cols = scheme.block_cols > 0 ? scheme.block_cols : matrix.cols;
    ref.scales.stride = CeilDiv(matrix.cols, ref.scales.cols);
    if (scheme.input == InputFormat::kInt8PerToken) ref.input = InputRounding::kInt8PerToken;
    return ref;
  }

 private:
  // Writers differ in trailing ones, which Parameter does not count.
  static PartShape ScaleShape(const WeightMatrix& matrix) {
    const QuantScheme& scheme = *matrix.scheme;
    const int64_t rows = scheme.block_rows > 0 ? CeilDiv(matrix.rows, scheme.block_rows) : 1;
    const int64_t cols = scheme.block_cols > 0 ? CeilDiv(matrix.cols, scheme.block_cols) : 1;
    return {rows, cols, ShareOfBlocks(matrix.row_share, scheme.block_rows),
            ShareOfBlocks(matrix.col_share, scheme.block_cols)};
  }
  static Share ShareOfBlocks(const Share& share, int64_t block) {
    if (share.is_whole() || block == 0) return {};
    return {share.begin / block, CeilDiv(share.size, block), CeilDiv(share.full, block)};
  }
  // A rank whose share begins inside a block would need another grid.
  static bool SharesAreWholeBlocks(LoadContext& context, const WeightMatrix& matrix) {
    const QuantScheme& scheme = *matrix.scheme;
    const auto whole = [](const Share& share, int64_t block) {
      return share.is_whole() || block == 0 || share.begin % block == 0;
    };
    if (whole(matrix.row_share, scheme.block_rows) && whole(matrix.col_share, scheme.block_cols)) {
      return true;
    }
    context.Error(
        fmt::format("{}.weight: a rank's share begins inside a block of {} x {} ({}); "
                    "fix: fewer ranks (--tp)",
                    matrix.path, scheme.block_rows, scheme.block_cols, scheme.Text()));
    return false;
  }

  static std::string NameOfScales(LoadContext& context, const WeightMatrix& matrix) {
    const QuantScheme& scheme = *matrix.scheme;
    for (const std::string& name : scheme.scale_names) {
      std::string path = fmt::format("{}.{}", matrix.path, name);
      if (context.index == nullptr || context.index->Find(path) != nullptr) return path;
    }
    context.Error(fmt::format(
        "{}.weight: its scales are missing: the checkpoint has no {} beside it, and codes mean "
        "nothing without ({}); fix: a complete checkpoint, or a quantization_config that leaves "
        "the layer out",
        matrix.path, Join(scheme.scale_names, " or "), scheme.Text()));
    return "";
  }

  // A family that permutes or cuts the weight would have to do so with its scales.
  static bool AreInOneOrder(LoadContext& context, const WeightMatrix& matrix,
                            const std::string& scales) {
    if (context.index == nullptr || matrix.scheme->block_rows == 0) return true;
    const IndexedTensor* weight = context.index->Find(matrix.path + ".weight");
    const bool changed = weight != nullptr && weight->transform != nullptr;
    if (!changed || context.index->Find(scales)->transform != nullptr) return true;
    context.Error(fmt::format(
        "{}.weight: the file has it in another order than the model, its scales ({}) have no rule "
        "for that; fix: use the checkpoint as it was before quantisation",
        matrix.path, scales));
    return false;
  }

  // Products round inputs by the token or not at all; the scale that was calibrated is not needed.
  static void NoteInputScales(LoadContext& context, const WeightMatrix& matrix) {
    if (context.index == nullptr) return;
    for (const std::string& name : matrix.scheme->input_scale_names) {
      const IndexedTensor* tensor = context.index->Find(fmt::format("{}.{}", matrix.path, name));
      if (tensor == nullptr) continue;
      context.index->MarkUsed(*tensor);
      ++context.idle_input_scales;
    }
  }
};

// OCP microscaling: `weight_packed` [rows, cols / 2], two numbers of four bits a byte (the even
// column low), and for each 32 columns a power of two. Every product of the two is a bf16 number,
// so that is what they are decoded to.
class Mxfp4 final : public LinearMethod {
 public:
  void Declare(LoadContext& context, Module& owner, WeightMatrix& m) const override {
    const Share& cols = m.col_share;
    if (m.cols % kGroup != 0 || cols.begin % kGroup != 0) {
      context.Error(fmt::format(
          "{}: mxfp4 has its columns in groups of {}, and there are {}{}; fix: {}", m.path, kGroup,
          m.cols, cols.is_whole() ? "" : fmt::format(" from column {} on", cols.begin),
          cols.is_whole() ? "exclude the layer" : "fewer ranks (--tp)"));
      return;
    }
    m.weight = &owner.AddParameter(context, m.path + ".weight_packed",
                                   {m.rows, m.cols / 2, m.row_share, Fraction(cols, 2)},
                                   Parameter::Form::kCodes, DType::kU8);
    m.scales = &owner.AddParameter(context, m.path + "." + m.scheme->scale_names.front(),
                                   {m.rows, m.cols / kGroup, m.row_share, Fraction(cols, kGroup)},
                                   Parameter::Form::kCodes, DType::kU8);
  }

  MatrixRef Matrix(const WeightMatrix& m) const override {
    MatrixRef matrix;
    matrix.data = m.decoded.data();
    matrix.dtype = DType::kBF16;
    matrix.rows = m.rows;
    matrix.cols = m.cols;
    matrix.row_bytes = RowBytes(DType::kBF16, m.cols);
    if (m.weight != nullptr) matrix.compute = m.weight->compute();
    return matrix;
  }

  int64_t DecodedBytes(const WeightMatrix& m) const override {
    return m.rows * RowBytes(DType::kBF16, m.cols);
  }

  Status Decode(const WeightMatrix& m, std::span<std::byte> out) const override {
    auto* numbers = reinterpret_cast<uint16_t*>(out.data());
    for (int64_t r = 0; r < m.rows; ++r) {
      const std::byte* codes = m.weight->view().data() + r * m.weight->stored_row_stride();
      const std::byte* scales = m.scales->view().data() + r * m.scales->stored_row_stride();
      for (int64_t c = 0; c < m.cols; ++c) {
        const auto pair = static_cast<uint8_t>(codes[c / 2]);
        const float scale = F8E8M0ToFloat(static_cast<uint8_t>(scales[c / kGroup]));
        *numbers++ = FloatToBf16(F4E2M1ToFloat(c % 2 == 0 ? pair & 15 : pair >> 4) * scale);
      }
    }
    return {};
  }

 private:
  static constexpr int64_t kGroup = 32;
  static Share Fraction(const Share& share, int64_t of) {
    return {share.begin / of, share.size / of, share.full / of};
  }
};

const LinearMethodTable& MethodsOf(const LoadContext& context) {
  static const LinearMethodTable builtin = LinearMethodTable::Builtin();
  return context.linear_methods == nullptr ? builtin : *context.linear_methods;
}

std::string MethodName(const LoadContext& context, const WeightMatrix& matrix) {
  if (!matrix.scheme->is_plain() || context.index == nullptr) return matrix.scheme->method;
  const IndexedTensor* tensor = context.index->Find(matrix.path + ".weight");
  const bool in_blocks = tensor != nullptr && tensor->unsupported.empty() && IsBlock(tensor->dtype);
  return in_blocks ? "gguf" : matrix.scheme->method;
}

}  // namespace

const QuantScheme& PlainScheme() {
  static const QuantScheme plain;
  return plain;
}

LinearMethodTable LinearMethodTable::Builtin() {
  LinearMethodTable table;
  table.Add("plain", std::make_shared<SelfContained>());
  table.Add("gguf", std::make_shared<SelfContained>());
  table.Add("fp8", std::make_shared<ScaledCodes>());
  table.Add("int8", std::make_shared<ScaledCodes>());
  table.Add("mxfp4", std::make_shared<Mxfp4>());
  return table;
}

void LinearMethodTable::Add(std::string name, std::shared_ptr<const LinearMethod> method) {
  methods_.insert_or_assign(std::move(name), std::move(method));
}

const LinearMethod* LinearMethodTable::Find(const std::string& name) const {
  const auto found = methods_.find(name);
  return found == methods_.end() ? nullptr : found->second.get();
}

std::vector<std::string> LinearMethodTable::Names() const {
  std::vector<std::string> names;
  for (const auto& [name, method] : methods_) names.push_back(name);
  return names;
}

bool CreateWeight(LoadContext& context, Module& owner, WeightMatrix& matrix) {
  const LinearMethodTable& methods = MethodsOf(context);
  const std::string name = MethodName(context, matrix);
  matrix.method = methods.Find(name);
  if (matrix.method == nullptr) {
    context.Error(fmt::format("{}: quantisation method = {}, supports {}", matrix.path, name,
                              Join(methods.Names(), ", ")));
    return false;
  }
  matrix.method->Declare(context, owner, matrix);
  return true;
}

int64_t DecodedBytes(const WeightMatrix& matrix) {
  return matrix.method == nullptr ? 0 : matrix.method->DecodedBytes(matrix);
}

Status DecodeWeight(WeightMatrix& matrix) {
  const int64_t bytes = DecodedBytes(matrix);
  if (bytes == 0) return {};
  TN_ASSIGN_OR_RETURN(matrix.decoded, Buffer::Allocate(bytes, matrix.path.c_str()));
  return matrix.method->Decode(matrix, matrix.decoded.bytes());
}

MatrixRef MatrixOf(const WeightMatrix& matrix) {
  if (matrix.method != nullptr) return matrix.method->Matrix(matrix);
  MatrixRef ref;
  ref.rows = matrix.rows;
  ref.cols = matrix.cols;
  return ref;
}

}  // namespace tenon
