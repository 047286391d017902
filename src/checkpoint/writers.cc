#include "tenon/checkpoint/writers.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <unordered_set>

#include "tenon/base/file.h"
#include "tenon/base/json.h"
#include "tenon/checkpoint/file_kind.h"
#include "tenon/checkpoint/stored_types.h"
#include "tenon/tensor/buffer.h"

namespace tenon {
namespace {

constexpr int kGgufRank = 4;  // GGML_MAX_DIMS

template <typename T>
std::string Bytes(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

std::string LengthAndText(std::string_view text) {
  std::string bytes = Bytes(static_cast<uint64_t>(text.size()));
  bytes += text;
  return bytes;
}

std::string ArrayHead(GgufType type, size_t count) {
  return Bytes(static_cast<uint32_t>(type)) + Bytes(static_cast<uint64_t>(count));
}

Status CheckNames(std::span<const OutputTensor> tensors) {
  std::unordered_set<std::string_view> names;
  for (const OutputTensor& tensor : tensors) {
    if (!names.insert(tensor.name).second) {
      return Refused(fmt::format("tensor {} is given twice", QuotedName(tensor.name)));
    }
  }
  return {};
}

// Bytes of a tensor; zero elements are for the caller to allow.
Result<int64_t> BytesOf(const OutputTensor& tensor) {
  const DTypeInfo& info = InfoOf(tensor.dtype);
  const auto bytes = CheckedBytes(info.block_elements, info.block_bytes, tensor.shape.dims());
  if (bytes.has_value()) return *bytes;
  return Refused(fmt::format("tensor {}: {} {} is not whole blocks or too large",
                             QuotedName(tensor.name), info.name, tensor.shape.Text()));
}

Status AppendPadding(FileWriter& file, int64_t alignment) {
  const int64_t gap = (alignment - file.size() % alignment) % alignment;
  return file.Append(std::string(static_cast<size_t>(gap), '\0'));
}

Status AppendData(FileWriter& file, const OutputTensor& tensor) {
  TN_ASSIGN_OR_RETURN(const LoadedTensor loaded, tensor.load(),
                      fmt::format("tensor {}", QuotedName(tensor.name)));
  const TensorView& view = loaded.view;
  if (view.dtype() != tensor.dtype || !(view.shape() == tensor.shape) || !view.is_contiguous()) {
    return InternalError(fmt::format("tensor {}: {} was declared as {} {}, contiguous",
                                     QuotedName(tensor.name), view.Text(), NameOf(tensor.dtype),
                                     tensor.shape.Text()));
  }
  TN_ASSIGN_OR_RETURN(const int64_t bytes, BytesOf(tensor));
  return file.Append({reinterpret_cast<const char*>(view.data()), static_cast<size_t>(bytes)});
}

}  // namespace

OutputTensor OutputTensor::Of(std::string name, const TensorView& view) {
  return {std::move(name), view.dtype(), view.shape(), [view]() -> Result<LoadedTensor> {
            return LoadedTensor{view, nullptr, true};
          }};
}

namespace {

// The JSON header and, in file order, the tensors.
Result<std::string> SafetensorsHeader(std::vector<const OutputTensor*>& order,
                                      const std::map<std::string, std::string>& metadata) {
  Json header{Json::Object{}};
  if (!metadata.empty()) {
    Json texts{Json::Object{}};
    for (const auto& [key, value] : metadata) texts.as_object().emplace_back(key, value);
    header.as_object().emplace_back("__metadata__", std::move(texts));
  }
  std::stable_sort(order.begin(), order.end(), [](const OutputTensor* a, const OutputTensor* b) {
    return InfoOf(a->dtype).block_bytes > InfoOf(b->dtype).block_bytes;
  });
  int64_t offset = 0;
  for (const OutputTensor* tensor : order) {
    const std::optional<std::string> dtype = SafetensorsNameOf(tensor->dtype);
    if (!dtype.has_value()) {
      return Refused(fmt::format("tensor {}: safetensors cannot hold {}; allowed: {}",
                                 QuotedName(tensor->name), NameOf(tensor->dtype),
                                 SupportedSafetensorsTypes()));
    }
    TN_ASSIGN_OR_RETURN(const int64_t bytes, BytesOf(*tensor));
    Json::Array shape(tensor->shape.dims().begin(), tensor->shape.dims().end());
    Json entry{Json::Object{}};
    entry.Set("dtype", *dtype);
    entry.Set("shape", std::move(shape));
    entry.Set("data_offsets", Json::Array{offset, offset + bytes});
    header.as_object().emplace_back(tensor->name, std::move(entry));
    offset += bytes;
  }
  std::string text = header.Dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // data starts aligned
  return text;
}

}  // namespace

Status WriteSafetensors(const std::string& path, std::span<const OutputTensor> tensors,
                        const std::map<std::string, std::string>& metadata) {
  TN_RETURN_IF_ERROR(CheckNames(tensors), path);
  std::vector<const OutputTensor*> order;
  for (const OutputTensor& tensor : tensors) order.push_back(&tensor);
  TN_ASSIGN_OR_RETURN(const std::string header, SafetensorsHeader(order, metadata), path);
  TN_ASSIGN_OR_RETURN(const std::unique_ptr<FileWriter> file, FileWriter::Create(path));
  TN_RETURN_IF_ERROR(file->Append(LengthAndText(header)));
  for (const OutputTensor* tensor : order) TN_RETURN_IF_ERROR(AppendData(*file, *tensor), path);
  return file->Commit();
}

GgufBuilder& GgufBuilder::SetEncoded(std::string key, GgufType type, std::string encoded) {
  for (Entry& entry : entries_) {
    if (entry.key != key) continue;
    entry.type = type;
    entry.encoded = std::move(encoded);
    return *this;
  }
  entries_.push_back({std::move(key), type, std::move(encoded)});
  return *this;
}

GgufBuilder& GgufBuilder::SetUint32(std::string key, uint32_t value) {
  return SetEncoded(std::move(key), GgufType::kUint32, Bytes(value));
}
GgufBuilder& GgufBuilder::SetInt32(std::string key, int32_t value) {
  return SetEncoded(std::move(key), GgufType::kInt32, Bytes(value));
}
GgufBuilder& GgufBuilder::SetUint64(std::string key, uint64_t value) {
  return SetEncoded(std::move(key), GgufType::kUint64, Bytes(value));
}
GgufBuilder& GgufBuilder::SetFloat32(std::string key, float value) {
  return SetEncoded(std::move(key), GgufType::kFloat32, Bytes(value));
}
GgufBuilder& GgufBuilder::SetBool(std::string key, bool value) {
  return SetEncoded(std::move(key), GgufType::kBool, Bytes(static_cast<uint8_t>(value ? 1 : 0)));
}
GgufBuilder& GgufBuilder::SetString(std::string key, std::string_view value) {
  return SetEncoded(std::move(key), GgufType::kString, LengthAndText(value));
}
GgufBuilder& GgufBuilder::SetInt32s(std::string key, std::span<const int32_t> values) {
  std::string encoded = ArrayHead(GgufType::kInt32, values.size());
  encoded.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
  return SetEncoded(std::move(key), GgufType::kArray, std::move(encoded));
}
GgufBuilder& GgufBuilder::SetFloat32s(std::string key, std::span<const float> values) {
  std::string encoded = ArrayHead(GgufType::kFloat32, values.size());
  encoded.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
  return SetEncoded(std::move(key), GgufType::kArray, std::move(encoded));
}
GgufBuilder& GgufBuilder::SetStrings(std::string key, std::span<const std::string_view> values) {
  std::string encoded = ArrayHead(GgufType::kString, values.size());
  for (const std::string_view value : values) encoded += LengthAndText(value);
  return SetEncoded(std::move(key), GgufType::kArray, std::move(encoded));
}
GgufBuilder& GgufBuilder::Copy(std::string_view key, const GgufValue& value) {
  return SetEncoded(
      std::string(key), value.type(),
      {reinterpret_cast<const char*>(value.encoded().data()), value.encoded().size()});
}

namespace {

Result<int64_t> AlignmentOf(const GgufBuilder& metadata) {
  constexpr int64_t kDefault = 32;
  for (const GgufBuilder::Entry& entry : metadata.entries()) {
    if (entry.key != "general.alignment") continue;
    const auto bytes = std::as_bytes(std::span(entry.encoded));
    const auto alignment = GgufValue(entry.type, bytes).AsInt();
    if (alignment.has_value() && *alignment > 0 && *alignment <= int64_t{1} << 30 &&
        std::has_single_bit(static_cast<uint64_t>(*alignment))) {
      return *alignment;
    }
    return Refused("general.alignment is no power of two up to 2^30");
  }
  return kDefault;
}

// The directory entry of a tensor at `offset` of the data section.
Result<std::string> GgufTensorInfo(const OutputTensor& tensor, int64_t offset) {
  const std::optional<uint32_t> type = GgmlNumberOf(tensor.dtype);
  if (!type.has_value()) {
    return Refused(fmt::format("tensor {}: GGUF cannot hold {}; allowed: {}",
                               QuotedName(tensor.name), NameOf(tensor.dtype),
                               SupportedGgmlTypes()));
  }
  std::vector<int64_t> dims(tensor.shape.dims().begin(), tensor.shape.dims().end());
  if (dims.empty()) dims.push_back(1);
  if (dims.size() > kGgufRank || std::find(dims.begin(), dims.end(), 0) != dims.end()) {
    return Refused(
        fmt::format("tensor {}: shape {}, GGUF allows 1 to {} dimensions, none of them 0",
                    QuotedName(tensor.name), tensor.shape.Text(), kGgufRank));
  }
  std::string info = LengthAndText(tensor.name) + Bytes(static_cast<uint32_t>(dims.size()));
  for (auto dim = dims.rbegin(); dim != dims.rend(); ++dim) {
    info += Bytes(static_cast<uint64_t>(*dim));
  }
  return info + Bytes(*type) + Bytes(static_cast<uint64_t>(offset));
}

Result<std::string> GgufHeader(const GgufBuilder& metadata, std::span<const OutputTensor> tensors,
                               int64_t alignment) {
  constexpr uint32_t kVersion = 3;
  std::string header = "GGUF" + Bytes(kVersion) + Bytes(static_cast<uint64_t>(tensors.size())) +
                       Bytes(static_cast<uint64_t>(metadata.entries().size()));
  for (const GgufBuilder::Entry& entry : metadata.entries()) {
    header += LengthAndText(entry.key) + Bytes(static_cast<uint32_t>(entry.type)) + entry.encoded;
  }
  int64_t offset = 0;
  for (const OutputTensor& tensor : tensors) {
    TN_ASSIGN_OR_RETURN(const int64_t bytes, BytesOf(tensor));
    TN_ASSIGN_OR_RETURN(const std::string info, GgufTensorInfo(tensor, offset));
    header += info;
    offset = RoundUp(offset + bytes, alignment);
  }
  return header;
}

}  // namespace

Status WriteGguf(const std::string& path, const GgufBuilder& metadata,
                 std::span<const OutputTensor> tensors) {
  TN_RETURN_IF_ERROR(CheckNames(tensors), path);
  TN_ASSIGN_OR_RETURN(const int64_t alignment, AlignmentOf(metadata), path);
  TN_ASSIGN_OR_RETURN(const std::string header, GgufHeader(metadata, tensors, alignment), path);
  TN_ASSIGN_OR_RETURN(const std::unique_ptr<FileWriter> file, FileWriter::Create(path));
  TN_RETURN_IF_ERROR(file->Append(header));
  for (const OutputTensor& tensor : tensors) {
    TN_RETURN_IF_ERROR(AppendPadding(*file, alignment));
    TN_RETURN_IF_ERROR(AppendData(*file, tensor), path);
  }
  TN_RETURN_IF_ERROR(AppendPadding(*file, alignment));
  return file->Commit();
}

}  // namespace tenon
