#include <algorithm>

#include "checkpoint/names.h"
#include "support.h"
#include "tenon/checkpoint/tensor_index.h"
#include "tenon/numeric/decode.h"

namespace tenon::fuzz {
namespace {

void Decode(const TensorView& view, int64_t row) {
  constexpr int64_t kMostElements = 1 << 12;  // whole blocks of every format
  const DecodeRowFn decode = DecoderOf(view.dtype());
  if (decode == nullptr || view.row_bytes() == 0) return;
  const int64_t width = view.shape().rank() == 0 ? 1 : view.dim(-1);
  std::vector<float> out(static_cast<size_t>(std::min(width, kMostElements)));
  decode(view.data() + row * view.row_bytes(), static_cast<int64_t>(out.size()), out.data());
}

void WalkView(const TensorView& view) {
  const int64_t bytes = view.bytes();
  if (view.shape().elements() == 0 || bytes == 0) return;
  Read(std::span<const std::byte>(view.data(), static_cast<size_t>(bytes)));
  Decode(view, 0);
  Decode(view, view.shape().rows() - 1);
}

void WalkTensors(const Checkpoint& checkpoint) {
  for (const StoredTensor& tensor : checkpoint.tensors()) {
    Read(tensor.name);
    Read(tensor.type_name);
    Read(tensor.shape.Text());
    TN_CHECK(checkpoint.FindTensor(tensor.name) == &tensor, "a tensor is found by its name");
    const auto all = checkpoint.files()[static_cast<size_t>(tensor.file)]->bytes();
    Read(all.subspan(static_cast<size_t>(tensor.offset), static_cast<size_t>(tensor.bytes)));
    const Result<TensorView> view = checkpoint.MapTensor(tensor);
    if (view.ok()) {
      WalkView(*view);
    } else {
      CheckError(view.status());
    }
  }
}

void WalkValue(const GgufValue& value) {
  Read(value.encoded());
  Read(value.KindText());
  if (const auto text = value.AsString()) Read(*text);
  if (const auto texts = value.AsStrings()) {
    for (const std::string_view text : *texts) Read(text);
  }
  static_cast<void>(value.AsInt());
  static_cast<void>(value.AsFloat());
  static_cast<void>(value.AsBool());
  static_cast<void>(value.AsInts());
  static_cast<void>(value.AsFloats());
  static_cast<void>(value.AsBools());
  // Elements as values of their own; a long list of numbers was read above.
  constexpr int64_t kMost = 256;
  if (!value.is_array() || value.count() > kMost) return;
  const auto elements = value.AsArray();
  for (const GgufValue& element : *elements) WalkValue(element);
}

// By the typed functions, wrong kinds included.
void WalkKey(const GgufMetadata& metadata, std::string_view key) {
  const auto check = [](const auto& result) {
    if (!result.ok()) CheckError(result.status());
  };
  check(metadata.Int(key));
  check(metadata.Float(key));
  check(metadata.Bool(key));
  check(metadata.String(key));
  check(metadata.Ints(key));
  check(metadata.Floats(key));
  check(metadata.Bools(key));
  check(metadata.Strings(key));
  check(metadata.IntsPerLayer(key, 3));
  check(metadata.FloatsPerLayer(key, 3));
  check(metadata.BoolsPerLayer(key, 3));
}

void WalkMetadata(const GgufMetadata& metadata) {
  for (const GgufMetadata::Entry& entry : metadata.entries()) {
    Read(entry.key);
    WalkValue(entry.value);
    WalkKey(metadata, entry.key);
  }
  WalkKey(metadata, "general.absent");
}

void WalkIndex(const Checkpoint& checkpoint) {
  // Small numbers of heads, so that small tensors fit the permutation.
  Result<TensorIndex> built = TensorIndex::Build(checkpoint, test::GgufNames(2, 1, true));
  if (!built.ok()) return CheckError(built.status());
  const TensorIndex& index = *built;
  bool use = false;
  for (const IndexedTensor& tensor : index.tensors()) {
    Read(tensor.name);
    Read(tensor.unsupported);
    Read(index.StoredNameOf(tensor.name));
    TN_CHECK(index.Find(tensor.name) == &tensor, "a tensor is found by its canonical name");
    use = !use;
    if (use) index.MarkUsed(tensor);
    const Result<LoadedTensor> loaded = LoadTensor(checkpoint, tensor);
    if (loaded.ok()) {
      WalkView(loaded->view);
    } else {
      CheckError(loaded.status());
    }
  }
  for (const StoredTensor* tensor : index.UnusedStored()) Read(tensor->name);
  for (const IndexedTensor* tensor : index.UnusedCanonical()) Read(tensor->name);
  for (const std::string& name : index.NearNames("model.layers.7.mlp.up_proj.weight")) Read(name);
  CheckError(index.MarkUsed("no tensor has this name"));
}

}  // namespace

void Walk(const Checkpoint& checkpoint) {
  for (const std::string& note : checkpoint.notes()) Read(note);
  WalkTensors(checkpoint);
  if (checkpoint.gguf() != nullptr) WalkMetadata(*checkpoint.gguf());
  WalkIndex(checkpoint);
}

}  // namespace tenon::fuzz
