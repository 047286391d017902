#include "tenon/checkpoint/tensor_index.h"

#include <fmt/format.h>

#include <algorithm>

#include "tenon/base/text.h"
#include "tenon/checkpoint/file_kind.h"
#include "tenon/checkpoint/name_pattern.h"
#include "tenon/tensor/buffer.h"

namespace tenon {
namespace {

// Real models have up to some hundred thousand; a hostile header could name any number of slices.
constexpr int64_t kMostTensors = int64_t{1} << 20;

constexpr size_t kLongestCompared = 300;  // for near names

// Of an unsupported type only whole rows can be addressed; shapes need no more.
ElementLayout LayoutOf(const StoredTensor& stored) {
  if (stored.supported) return ElementLayout::Of(stored.dtype);
  const int64_t row = std::max<int64_t>(stored.shape.rank() == 0 ? 1 : stored.shape.dim(-1), 1);
  return {static_cast<int32_t>(std::min<int64_t>(row, 1 << 30)), 1};
}

Result<Gather> BindGather(const StoredTensor& stored, const Transform& transform, int64_t slice) {
  return Gather::Bind(LayoutOf(stored), stored.shape, transform, slice);
}

}  // namespace

Result<TensorIndex> TensorIndex::Build(const Checkpoint& checkpoint, NameTable table) {
  TensorIndex index;
  index.checkpoint_ = &checkpoint;
  index.table_ = std::make_unique<const NameTable>(std::move(table));
  index.tensors_.reserve(checkpoint.tensors().size());
  index.by_name_.reserve(checkpoint.tensors().size());
  for (const StoredTensor& stored : checkpoint.tensors()) {
    TN_RETURN_IF_ERROR(index.AddStored(stored),
                       fmt::format("{}: tensor {}", checkpoint.path(), QuotedName(stored.name)));
  }
  index.used_.resize(index.tensors_.size(), false);
  return index;
}

Status TensorIndex::AddStored(const StoredTensor& stored) {
  const std::string normalised = table_->Normalise(stored.name);
  const std::vector<NameTable::Match> matches = table_->MatchStored(normalised);
  for (const NameTable::Match& match : matches) TN_RETURN_IF_ERROR(AddMatch(stored, match));
  if (!matches.empty()) return {};
  IndexedTensor tensor;
  tensor.dtype = stored.dtype;
  tensor.shape = stored.shape;
  tensor.stored = &stored;
  return Add(std::move(tensor), normalised);
}

Status TensorIndex::AddMatch(const StoredTensor& stored, const NameTable::Match& match) {
  const Transform& transform = match.row->transform;
  TN_ASSIGN_OR_RETURN(const Gather gather, BindGather(stored, transform, 0));
  IndexedTensor tensor{.dtype = stored.dtype,
                       .shape = gather.shape(),
                       .stored = &stored,
                       .transform = transform.empty() ? nullptr : &transform};
  const TransformStep* slice = SliceOf(transform);
  const int64_t slices = slice == nullptr ? 1 : stored.shape.dim(slice->dim);
  TN_RETURN_IF_ERROR(CheckCount(slices));
  for (tensor.slice = 0; tensor.slice < slices; ++tensor.slice) {
    TN_RETURN_IF_ERROR(Add(tensor, table_->CanonicalName(match, tensor.slice)));
  }
  return {};
}

Status TensorIndex::CheckCount(int64_t more) const {
  if (more <= kMostTensors - static_cast<int64_t>(tensors_.size())) return {};
  return Refused(
      fmt::format("{} slices, at most {} tensors and slices in all are allowed; the file "
                  "is damaged",
                  more, kMostTensors));
}

Status TensorIndex::Add(IndexedTensor tensor, std::string_view name) {
  if (!tensor.stored->supported) tensor.unsupported = CheckTypeSupported(*tensor.stored).message();
  // Most Hugging Face names are canonical already: no second copy.
  tensor.name = name == tensor.stored->name ? tensor.stored->name : names_.Add(name);
  const auto [other, is_new] = by_name_.emplace(tensor.name, static_cast<int>(tensors_.size()));
  if (!is_new) {
    return Refused(
        fmt::format("stands for {}, as {} does; fix: remove one of them", QuotedName(name),
                    QuotedName(tensors_[static_cast<size_t>(other->second)].stored->name)));
  }
  tensors_.push_back(std::move(tensor));
  return {};
}

const IndexedTensor* TensorIndex::Find(std::string_view canonical) const {
  const auto found = by_name_.find(canonical);
  return found == by_name_.end() ? nullptr : &tensors_[static_cast<size_t>(found->second)];
}

std::string_view TensorIndex::StoredNameOf(std::string_view canonical) const {
  const IndexedTensor* tensor = Find(canonical);
  return tensor == nullptr ? std::string_view() : tensor->stored->name;
}

void TensorIndex::MakePatterns() const {
  constexpr size_t kMostPatterns = 2000;
  std::vector<int64_t> ignored;
  for (const IndexedTensor& tensor : tensors_) {
    if (tensor.name.size() > kLongestCompared) continue;
    patterns_->sample_of.emplace(PatternKey(tensor.name, ignored), tensor.name);
    if (patterns_->sample_of.size() == kMostPatterns) break;
  }
}

std::vector<std::string> TensorIndex::NearNames(std::string_view canonical, int limit) const {
  if (canonical.size() > kLongestCompared) return {};
  std::call_once(patterns_->made, [this] { MakePatterns(); });
  std::vector<std::string> patterns;
  for (const auto& [pattern, sample] : patterns_->sample_of) patterns.push_back(pattern);
  std::vector<int64_t> wanted;
  const std::string key = PatternKey(canonical, wanted);
  std::vector<std::string> names;
  for (const std::string& pattern : tenon::NearNames(key, patterns, limit)) {
    std::vector<int64_t> numbers;
    PatternKey(pattern, numbers);
    const std::string same_place =
        numbers.size() == wanted.size() ? FillPattern(pattern, wanted) : std::string();
    names.emplace_back(Find(same_place) != nullptr ? same_place : patterns_->sample_of.at(pattern));
  }
  return names;
}

void TensorIndex::MarkUsed(const IndexedTensor& tensor) const {
  const auto position = static_cast<size_t>(&tensor - tensors_.data());
  TN_CHECK(position < tensors_.size(), "the tensor is of this index");
  used_[position] = true;
}

Status TensorIndex::MarkUsed(std::string_view canonical) const {
  const IndexedTensor* tensor = Find(canonical);
  if (tensor != nullptr) {
    MarkUsed(*tensor);
    return {};
  }
  const std::vector<std::string> near = NearNames(canonical);
  return NotFound(fmt::format("{}: has no tensor {}{}{}", checkpoint_->path(),
                              QuotedName(canonical),
                              near.empty() ? "" : "; nearest: ", Join(near, ", ")));
}

bool TensorIndex::IsUsed(const IndexedTensor& tensor) const {
  return used_[static_cast<size_t>(&tensor - tensors_.data())];
}

std::vector<const StoredTensor*> TensorIndex::UnusedStored() const {
  const std::span<const StoredTensor> all = checkpoint_->tensors();
  std::vector<bool> touched(all.size(), false);
  for (const IndexedTensor& tensor : tensors_) {
    if (IsUsed(tensor)) touched[static_cast<size_t>(tensor.stored - all.data())] = true;
  }
  std::vector<const StoredTensor*> unused;
  for (size_t i = 0; i < all.size(); ++i) {
    if (!touched[i]) unused.push_back(&all[i]);
  }
  return unused;
}

std::vector<const IndexedTensor*> TensorIndex::UnusedCanonical() const {
  std::vector<const IndexedTensor*> unused;
  for (const IndexedTensor& tensor : tensors_) {
    if (!IsUsed(tensor)) unused.push_back(&tensor);
  }
  return unused;
}

Result<LoadedTensor> LoadTensor(const Checkpoint& checkpoint, const IndexedTensor& tensor) {
  TN_ASSIGN_OR_RETURN(const TensorView stored, checkpoint.MapTensor(*tensor.stored));
  const Transform none;
  TN_ASSIGN_OR_RETURN(
      const Gather gather,
      BindGather(*tensor.stored, tensor.transform == nullptr ? none : *tensor.transform,
                 tensor.slice),
      QuotedName(tensor.name));
  LoadedTensor loaded;
  const int64_t alignment = IsBlock(tensor.dtype) ? 2 : InfoOf(tensor.dtype).block_bytes;
  std::byte* in_file = stored.data() + gather.offset_bytes();
  if (gather.is_contiguous() && reinterpret_cast<uintptr_t>(in_file) % alignment == 0) {
    loaded.view = TensorView(tensor.dtype, tensor.shape, in_file);
    loaded.owner = checkpoint.files()[static_cast<size_t>(tensor.stored->file)];
    loaded.zero_copy = true;
    loaded.file = checkpoint.files()[static_cast<size_t>(tensor.stored->file)].get();
    return loaded;
  }
  const std::string purpose(tensor.name);
  TN_ASSIGN_OR_RETURN(Buffer buffer, Buffer::Allocate(gather.canonical_bytes(), purpose.c_str()));
  gather.Read(stored.data(), buffer.data());
  loaded.view = TensorView(tensor.dtype, tensor.shape, buffer.data());
  loaded.owner = std::make_shared<const Buffer>(std::move(buffer));
  return loaded;
}

}  // namespace tenon
