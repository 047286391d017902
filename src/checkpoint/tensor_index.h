// TensorIndex: the tensors of a checkpoint under canonical names, with the shape a model wants, and
// which of them were used. No data is read: LoadTensor does that, one tensor at a time. The index
// points into its Checkpoint, which must outlive it. Find and NearNames may be called from many
// threads; MarkUsed belongs to the one that constructs the model.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tenon/checkpoint/checkpoint.h"
#include "tenon/checkpoint/name_table.h"
#include "tenon/tensor/tensor_view.h"

namespace tenon {

struct IndexedTensor {
  std::string_view name = {};  // canonical
  DType dtype = DType::kU8;
  // Why the stored type cannot be used (then dtype means nothing); empty: it can.
  std::string unsupported = {};
  Shape shape = {};  // after the transform
  const StoredTensor* stored = nullptr;
  const Transform* transform = nullptr;  // null: as stored
  int64_t slice = 0;                     // index of the transform's slice step
};

class TensorIndex {
 public:
  // kRefused: a stored shape that a transform does not fit, two stored tensors for one canonical
  // name; both with the names involved.
  static Result<TensorIndex> Build(const Checkpoint& checkpoint, NameTable table);

  std::span<const IndexedTensor> tensors() const { return tensors_; }
  const IndexedTensor* Find(std::string_view canonical) const;
  // The name in the file; empty when there is no such tensor.
  std::string_view StoredNameOf(std::string_view canonical) const;
  // Names that resemble an absent one; those that differ in a number only come first.
  std::vector<std::string> NearNames(std::string_view canonical, int limit = 3) const;
  const NameTable& table() const { return *table_; }

  void MarkUsed(const IndexedTensor& tensor) const;  // const: bookkeeping, not content
  // By name; kNotFound with near names.
  Status MarkUsed(std::string_view canonical) const;
  bool IsUsed(const IndexedTensor& tensor) const;
  // Stored tensors that no used tensor reads, and canonical ones that nobody uses (of a stack of
  // eight experts a model may want four: then the stack is used, its last slices are not).
  std::vector<const StoredTensor*> UnusedStored() const;
  std::vector<const IndexedTensor*> UnusedCanonical() const;

 private:
  // Names without their numbers, each with one name that has it: what NearNames compares. Made when
  // first needed, which is when something is wrong.
  struct Patterns {
    std::once_flag made;
    std::map<std::string, std::string_view> sample_of;
  };

  TensorIndex() = default;
  void MakePatterns() const;
  Status AddStored(const StoredTensor& stored);
  Status AddMatch(const StoredTensor& stored, const NameTable::Match& match);
  Status CheckCount(int64_t more) const;
  Status Add(IndexedTensor tensor, std::string_view name);

  const Checkpoint* checkpoint_ = nullptr;
  std::unique_ptr<const NameTable> table_;
  StringArena names_;
  std::vector<IndexedTensor> tensors_;
  std::unordered_map<std::string_view, int> by_name_;
  mutable std::vector<bool> used_;  // as tensors_
  std::unique_ptr<Patterns> patterns_ = std::make_unique<Patterns>();
};

struct LoadedTensor {
  TensorView view;                    // contiguous
  std::shared_ptr<const void> owner;  // of the bytes: the mapping or a buffer
  bool zero_copy = false;             // the file's own bytes: read-only
  const MappedFile* file = nullptr;   // that they lie in, where zero_copy; part of `owner`
};

// The tensor in its canonical form. Zero-copy when the transform leaves one run of bytes (none, a
// slice of the outermost dimension, a range of rows) at an address aligned for the type (elements:
// their size, blocks: 2 bytes); else a copy with the transform applied.
Result<LoadedTensor> LoadTensor(const Checkpoint& checkpoint, const IndexedTensor& tensor);

}  // namespace tenon
