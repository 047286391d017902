#include "tenon/modules/module.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "tenon/base/text.h"
#include "tenon/modules/meta_error.h"
#include "tenon/numeric/decode.h"
#include "tenon/ops/pack_weights.h"

namespace tenon {

void LoadContext::Record(Decision decision) {
  const Status status = ledger.Record(std::move(decision));
  if (!status.ok()) Error(status.message());
}

Status LoadContext::Errors() const {
  if (errors.empty()) return {};
  if (errors.size() == 1) return Refused(errors[0]);
  // A wrong config makes hundreds of equal complaints; the first ones tell the story.
  constexpr size_t kShown = 12;
  std::string text = fmt::format("{} problems:", errors.size());
  for (size_t i = 0; i < errors.size() && i < kShown; ++i) text += "\n  " + errors[i];
  if (errors.size() > kShown) text += fmt::format("\n  and {} more", errors.size() - kShown);
  return Refused(text);
}

void LoadContext::ClearTree(size_t decisions) {
  ledger.Truncate(decisions);
  errors.clear();
  modules.clear();
  attention_layers.clear();
  caches.clear();
  ropes.clear();
  position = Position::kBeforeLayers;
  has_logits = true;
  construction_bytes = 0;
  idle_input_scales = 0;
}

Scope Scope::operator/(std::string_view name) const {
  if (path_.empty()) return {*context_, std::string(name)};
  return {*context_, fmt::format("{}.{}", path_, name)};
}

std::string_view Scope::name() const {
  return std::string_view(path_).substr(path_.rfind('.') + 1);
}

Scope Scope::Parent() const {
  const size_t dot = path_.rfind('.');
  return {*context_, dot == std::string::npos ? std::string() : path_.substr(0, dot)};
}

namespace {

// " as blk.0.attn_q.weight" when the file has another name for the tensor.
std::string OtherName(const TensorIndex& index, std::string_view canonical) {
  const std::string_view stored = index.StoredNameOf(canonical);
  return stored == canonical ? std::string() : fmt::format(" as {}", stored);
}

// A vector may come as [1, n] or a convolution as [c, 1, k]: the same numbers in the same order.
bool SameNumbers(const Shape& a, const Shape& b) {
  const auto width = [](const Shape& shape) { return shape.rank() == 0 ? 1 : shape.dim(-1); };
  return a.elements() == b.elements() && width(a) == width(b);
}

// Scales of rows come as [n] or [n, 1], one number as [] or [1]: equal but for ones.
bool SameButForOnes(const Shape& a, const Shape& b) {
  const auto counted = [](const Shape& shape) {
    std::vector<int64_t> dims(shape.dims().begin(), shape.dims().end());
    std::erase(dims, 1);
    return dims;
  };
  return counted(a) == counted(b);
}

}  // namespace

bool Parameter::Declare(LoadContext& context) {
  compute_ = context.options.compute.value;
  if (context.index == nullptr) {
    stored_dtype_ = codes_.value_or(context.default_dtype);
    if (form_ == Form::kProduct) PackForProducts(context);
    return true;
  }
  source_ = context.index->Find(path_);
  if (source_ == nullptr) {
    const std::vector<std::string> near = context.index->NearNames(path_);
    context.Error(
        fmt::format("{}: the checkpoint has no such tensor{}; fix: a complete checkpoint, or the "
                    "config.json that belongs to it",
                    path_, near.empty() ? "" : "; nearest: " + Join(near, ", ")));
    return false;
  }
  context.index->MarkUsed(*source_);
  if (!source_->unsupported.empty()) {
    context.Error(path_ + ": " + source_->unsupported);
    return false;
  }
  const Shape full = part_.Full();
  const bool fits = SameNumbers(source_->shape, full) ||
                    (form_ == Form::kFloat32 && SameButForOnes(source_->shape, full));
  if (!fits) {
    context.Error(
        fmt::format("{}: shape {} in the checkpoint{}, the config says {}; fix: the config that "
                    "belongs to these "
                    "weights",
                    path_, source_->shape.Text(), OtherName(*context.index, path_), full.Text()));
    return false;
  }
  const std::string problem = ProblemWith(source_->dtype);
  if (!problem.empty()) {
    context.Error(fmt::format("{}: stored as {}, {}", path_, NameOf(source_->dtype), problem));
    return false;
  }
  const int64_t block = InfoOf(source_->dtype).block_elements;
  if (part_.cols.begin % block != 0 || part_.cols.size % block != 0) {
    context.Error(fmt::format(
        "{}: columns [{}, {}) of {} do not end between blocks of {} ({}); fix: fewer ranks (--tp)",
        path_, part_.cols.begin, part_.cols.begin + part_.cols.size, part_.cols.full, block,
        NameOf(source_->dtype)));
    return false;
  }
  stored_dtype_ = source_->dtype;  // only now: rows of this shape are whole blocks of it
  if (form_ == Form::kProduct) PackForProducts(context);
  return true;
}

std::string Parameter::ProblemWith(DType dtype) const {
  if (codes_) {
    if (dtype == *codes_) return "";
    return fmt::format(
        "its quantisation wants {}; fix: the quantization_config that belongs to these weights, or "
        "the layer among its excludes",
        NameOf(*codes_));
  }
  const bool is_code = dtype == DType::kI8 || dtype == DType::kF8E4M3 || dtype == DType::kF8E5M2;
  if (form_ != Form::kFloat32 && is_code) {
    return "codes that mean nothing without scales, but the config leaves this layer unquantised; "
           "fix: the quantization_config that belongs to these weights";
  }
  return InfoOf(dtype).is_float ? "" : "allowed: floats and GGUF blocks";
}

void Parameter::PackForProducts(const LoadContext& context) {
  const WeightPacking packing = context.options.packing;
  if (packing == WeightPacking::kNever || compute_ == Compute::kFp32) return;
  const bool packs = packing == WeightPacking::kWherePays
                         ? PackingPays(*context.kernels, stored_dtype_)
                         : CanPack(*context.kernels, stored_dtype_);
  if (!packs) return;
  packed_row_bytes_ = PackedShapeOf(*context.kernels, MetaRowsOf(*this)).row_bytes;
}

int64_t Parameter::held_bytes() const {
  if (form_ == Form::kCodes) return 0;
  return packed_row_bytes_ > 0 ? PackedBytes(MetaMatrixOf(*this)) : BytesAs(dtype());
}

void Parameter::SetPacked(const std::byte* packed) {
  packed_ = packed;
  if (form_ != Form::kProduct) return;
  view_ = TensorView(stored_dtype_, shape_, nullptr);
  owner_.reset();
  file_ = nullptr;
}

void Parameter::Release() {
  TN_CHECK(form_ == Form::kCodes, "others are read while the model runs");
  if (file_ != nullptr && part_.cols.is_whole()) {
    file_->GiveBack({view_.data(), static_cast<size_t>(stored_bytes())});
  }
  view_ = TensorView(stored_dtype_, shape_, nullptr);
  owner_.reset();
  file_ = nullptr;
}

Status Parameter::Load(const Checkpoint& checkpoint) {
  TN_CHECK(source_ != nullptr, "declared parameters have a source");
  if (loaded()) return {};  // while it was constructed
  TN_ASSIGN_OR_RETURN(LoadedTensor loaded, LoadTensor(checkpoint, *source_), "loading " + path_);
  if (form_ == Form::kFloat32 && (stored_dtype_ != DType::kF32 || !part_.cols.is_whole())) {
    TN_ASSIGN_OR_RETURN(buffer_, Buffer::Allocate(shape_.elements() * 4, path_.c_str()));
    auto* out = reinterpret_cast<float*>(buffer_.data());
    const int64_t width = shape_.rank() == 0 ? 1 : shape_.dim(-1);
    for (int64_t r = 0; r < shape_.rows(); ++r) {
      DecoderOf(stored_dtype_)(loaded.view.data() + part_offset() + r * stored_row_stride(), width,
                               out + r * width);
    }
    view_ = TensorView(DType::kF32, shape_, buffer_.data());
    return {};
  }
  // The rows of a share of the columns lie apart: readers go by stored_row_stride.
  view_ = TensorView(stored_dtype_, shape_, loaded.view.data() + part_offset());
  owner_ = std::move(loaded.owner);
  file_ = loaded.file;
  return {};
}

Share BeginLayers(LoadContext& context, int64_t layers) {
  const ParallelMapping& mapping = context.options.mapping;
  if (mapping.pp > 1 && context.position != LoadContext::Position::kBeforeLayers) {
    context.Error("a model of two stacks of layers cannot be cut into stages; fix: --pp 1");
  }
  if (layers < mapping.pp) {
    context.Error(fmt::format("pp = {}, but there are {} layers; fix: --pp {} or less", mapping.pp,
                              layers, layers));
  }
  context.position = LoadContext::Position::kInLayers;
  return LayersOfStage(mapping, layers);
}

void Parameter::RequireNumbers() const {
  if (!loaded() && shape_.elements() > 0) throw MetaError(path_);
}

Parameter& Module::AddParameter(LoadContext& context, const std::string& path,
                                const PartShape& shape, Parameter::Form form,
                                std::optional<DType> codes) {
  Parameter& parameter = parameters_.emplace_back(path, shape, form, codes);
  if (!parameter.Declare(context) || context.storage == nullptr) return parameter;
  const Status status = parameter.Load(*context.storage);
  if (!status.ok()) {
    context.Error(status.message());
  } else if (!parameter.zero_copy()) {
    context.construction_bytes += parameter.stored_bytes();
  }
  return parameter;
}

PackedTotal PackedTotalOf(const LoadContext& context) {
  PackedTotal total;
  for (Module* module : context.modules) {
    for (const Parameter& parameter : module->parameters()) {
      if (parameter.held_form() != HeldForm::kPacked) continue;
      ++total.matrices;
      total.bytes += parameter.held_bytes();
    }
  }
  return total;
}

int64_t PackingWindowBytes(const LoadContext& context) {
  int64_t all = 0;
  int64_t largest = 0;
  for (Module* module : context.modules) {
    for (const Parameter& parameter : module->parameters()) {
      if (parameter.held_form() != HeldForm::kPacked) continue;
      all += parameter.stored_bytes();
      largest = std::max(largest, parameter.stored_bytes());
    }
  }
  return std::min(all, 2 * (kPackBatchBytes + largest));
}

int64_t DecodingWindowBytes(const LoadContext& context) {
  int64_t most = 0;
  for (Module* module : context.modules) {
    int64_t bytes = 0;
    for (const Parameter& parameter : module->parameters()) {
      if (parameter.form() == Parameter::Form::kCodes) bytes += parameter.stored_bytes();
    }
    most = std::max(most, bytes);
  }
  return most;
}

int64_t Parameter::stored_row_stride() const {
  const Shape full = part_.Full();
  return RowBytes(stored_dtype_, full.rank() == 0 ? 1 : full.dim(-1));
}

int64_t Parameter::part_offset() const {
  return part_.rows.begin * stored_row_stride() + RowBytes(stored_dtype_, part_.cols.begin);
}

MatrixRef MetaRowsOf(const Parameter& parameter) {
  MatrixRef matrix;
  matrix.dtype = parameter.dtype();
  matrix.rows = parameter.shape().rows();
  matrix.cols = parameter.shape().dim(-1);
  matrix.row_bytes = parameter.form() == Parameter::Form::kFloat32
                         ? RowBytes(matrix.dtype, matrix.cols)
                         : parameter.stored_row_stride();
  matrix.compute = parameter.compute();
  return matrix;
}

MatrixRef RowsOf(const Parameter& parameter) {
  MatrixRef matrix = MetaRowsOf(parameter);
  matrix.data = parameter.view().data();
  return matrix;
}

MatrixRef MetaMatrixOf(const Parameter& parameter) {
  MatrixRef matrix = MetaRowsOf(parameter);
  if (parameter.held_form() == HeldForm::kRows) return matrix;
  matrix.form = HeldForm::kPacked;
  matrix.row_bytes = parameter.packed_row_bytes();
  return matrix;
}

MatrixRef MatrixOf(const Parameter& parameter) {
  if (parameter.held_form() == HeldForm::kRows) return RowsOf(parameter);
  MatrixRef matrix = MetaMatrixOf(parameter);
  matrix.data = parameter.packed();
  return matrix;
}

void DecodeRow(const MatrixRef& matrix, int64_t row, float* out) {
  TN_CHECK(matrix.form == HeldForm::kRows, "packed matrices have no rows to read singly");
  const std::byte* codes = matrix.data + row * matrix.row_bytes;
  if (matrix.dtype == DType::kI8) {
    for (int64_t c = 0; c < matrix.cols; ++c)
      out[c] = static_cast<float>(static_cast<int8_t>(codes[c]));
  } else {
    DecoderOf(matrix.dtype)(codes, matrix.cols, out);
  }
  const ScaleGrid& scales = matrix.scales;
  if (!scales.present()) return;
  const float* of_row = scales.data + row / scales.rows * scales.stride;
  for (int64_t c = 0; c < matrix.cols; ++c) out[c] *= of_row[c / scales.cols];
}

}  // namespace tenon
