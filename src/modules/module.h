// Module: base of everything that owns weights or is addressed by name, and Parameter: one weight.
// Construction is on `meta`: shapes and dtypes, no bytes. There a parameter may be created and its
// sizes be read, nothing else; reading its numbers throws MetaError. The phases run over
// the whole tree, one after the other. Modules are immovable, because the tree and the tapes hold
// their addresses. Not thread-safe.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tenon/modules/load_context.h"
#include "tenon/ops/matmul.h"
#include "tenon/tensor/buffer.h"

namespace tenon {

// One weight as its module wants it.
class Parameter {
 public:
  enum class Form {
    kAsStored,  // matrices: kernels read the stored dtype, straight from the file where alignment
                // allows
    kProduct,   // the same, but only products read it: packed where the options want that
    kFloat32,   // vectors: a few numbers, widened once
    kCodes,     // needed until DecodeWeights has made of them what products read
  };
  // codes: the weight is stored as these, which mean numbers only with scales beside them.
  Parameter(std::string path, const PartShape& part, Form form, std::optional<DType> codes = {})
      : path_(std::move(path)), shape_(part.shape), part_(part), form_(form), codes_(codes) {}

  const std::string& path() const { return path_; }  // canonical name
  const Shape& shape() const { return shape_; }
  const PartShape& part() const { return part_; }  // which part of the stored tensor that is
  int64_t stored_row_stride() const;               // bytes between its rows as they are stored
  Form form() const { return form_; }
  DType dtype() const { return form_ == Form::kFloat32 ? DType::kF32 : stored_dtype_; }
  DType stored_dtype() const { return stored_dtype_; }
  // How products with this matrix may round their activations.
  Compute compute() const { return compute_; }
  HeldForm held_form() const { return packed_row_bytes_ > 0 ? HeldForm::kPacked : HeldForm::kRows; }
  int64_t stored_bytes() const { return BytesAs(stored_dtype_); }
  // Of packed ones the copy: the file's pages are given back. A table of which products read a
  // packed copy stays mapped beside it; its rows are read singly, and the system may drop the
  // pages.
  int64_t held_bytes() const;

  // Looks the tensor up in the index: its dtype, its shape. Errors go to the context. False when
  // absent.
  bool Declare(LoadContext& context);
  // Products read this one too, whatever its form: as for kProduct. After Declare.
  void PackForProducts(const LoadContext& context);
  // Brings the bytes as they are stored.
  Status Load(const Checkpoint& checkpoint);
  // Where the packed copy is; the stored bytes are given up, but for those of kAsStored. After
  // Load.
  void SetPacked(const std::byte* packed);
  // kCodes: gives the bytes up. After DecodeWeights.
  void Release();
  bool loaded() const { return view_.data() != nullptr || packed_ != nullptr; }
  bool zero_copy() const { return file_ != nullptr; }
  // Where the stored bytes lie, until SetPacked gives them up; null: in a copy of ours.
  const MappedFile* file() const { return file_; }
  // As stored; after Load, and of kProduct until SetPacked.
  const TensorView& view() const {
    RequireNumbers();
    return view_;
  }
  const std::byte* packed() const {  // after SetPacked
    RequireNumbers();
    return packed_;
  }
  int64_t packed_row_bytes() const { return packed_row_bytes_; }
  const float* floats() const {  // kFloat32, after Load
    RequireNumbers();
    return view_.as<float>();
  }

 private:
  void RequireNumbers() const;  // throws MetaError
  int64_t part_offset() const;  // bytes, from the stored tensor's first
  // Why the stored type will not do, with the fix; empty: it does.
  std::string ProblemWith(DType dtype) const;
  int64_t BytesAs(DType dtype) const {
    return shape_.rows() * RowBytes(dtype, shape_.rank() == 0 ? 1 : shape_.dim(-1));
  }

  std::string path_;
  Shape shape_;
  PartShape part_;
  Form form_;
  std::optional<DType> codes_;
  DType stored_dtype_ = DType::kF32;
  Compute compute_ = Compute::kFp32;
  const IndexedTensor* source_ = nullptr;
  TensorView view_{DType::kF32, {0}, nullptr};
  std::shared_ptr<const void> owner_;  // of the bytes, when they are not ours
  Buffer buffer_;                      // when they are
  const MappedFile* file_ = nullptr;
  int64_t packed_row_bytes_ = 0;  // 0: held as rows
  const std::byte* packed_ = nullptr;
};

class Quantiser;

class Module {
 public:
  explicit Module(const Scope& scope) : path_(scope.path()) {
    LoadContext& context = scope.context();
    if (context.OnThisStage()) context.modules.push_back(this);
  }
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  const std::string& path() const { return path_; }

  // Phases after construction, in this order.
  virtual void Quantise(Quantiser& /*quantiser*/) {}  // ask for the scheme of each weight matrix
  virtual void SelectAttention(LoadContext& /*context*/) {
  }  // backend and kernels per attention layer
  virtual void CreateWeights(LoadContext& /*context*/) {}  // declare parameters against the index
  virtual Status DecodeWeights() { return {}; }  // after Load: what no product reads as stored
  virtual void LinkWeights() {
  }  // after Load: hand the addresses of parameters to what the ops read
  virtual Status Derive() { return {}; }               // weights computed from weights
  virtual int64_t derived_bytes() const { return 0; }  // of what Derive makes; known before loading

  std::deque<Parameter>& parameters() { return parameters_; }

  // A parameter of this module, declared at once; its errors go to the context. Where a model is
  // built on real storage (LoadContext::storage), loaded at once too.
  Parameter& AddParameter(LoadContext& context, const std::string& path, const PartShape& shape,
                          Parameter::Form form, std::optional<DType> codes = {});

 protected:
  std::deque<Parameter> parameters_;

 private:
  std::string path_;
};

// The layers of a stack that this rank builds: all, or its stage's. Errors go to the context.
Share BeginLayers(LoadContext& context, int64_t layers);

// Blocks of one type, built as Block(scope / i, args..., i).
template <typename Block>
class ModuleList {
 public:
  template <typename... Args>
  ModuleList(const Scope& scope, int64_t count, const Args&... args) {
    LoadContext& context = scope.context();
    const Share layers = BeginLayers(context, count);
    for (int64_t i = layers.begin; i < layers.begin + layers.size; ++i)
      blocks_.emplace_back(scope / i, args..., static_cast<int>(i));
    context.position = LoadContext::Position::kAfterLayers;
  }
  auto begin() const { return blocks_.begin(); }
  auto end() const { return blocks_.end(); }
  size_t size() const { return blocks_.size(); }
  const Block& operator[](size_t i) const { return blocks_[i]; }

 private:
  std::deque<Block> blocks_;
};

// Of the parameters held packed.
struct PackedTotal {
  int64_t matrices = 0;
  int64_t bytes = 0;
};
PackedTotal PackedTotalOf(const LoadContext& context);
// File pages that are in memory beside their packed copies at one time while loading: one batch of
// kPackBatchBytes is read ahead while the one before is packed; a batch ends with the matrix that
// fills it.
inline constexpr int64_t kPackBatchBytes = 32 << 20;
int64_t PackingWindowBytes(const LoadContext& context);

// The most bytes of kCodes that are in memory at one time while loading: module by module they are
// loaded, decoded and given up.
int64_t DecodingWindowBytes(const LoadContext& context);

// What a loaded matrix parameter looks like to products.
MatrixRef MatrixOf(const Parameter& parameter);
// The same on meta: no address.
MatrixRef MetaMatrixOf(const Parameter& parameter);
// Its rows as they are stored, whether products read them or a packed copy.
MatrixRef RowsOf(const Parameter& parameter);
MatrixRef MetaRowsOf(const Parameter& parameter);
// A row of a matrix that is held as rows: numbers, with the scales applied.
void DecodeRow(const MatrixRef& matrix, int64_t row, float* out);

}  // namespace tenon
