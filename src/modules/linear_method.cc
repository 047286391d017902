#include "tenon/modules/linear_method.h"

#include <fmt/format.h>

#include "tenon/base/text.h"

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
