#include "tenon/checkpoint/safetensors.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <cstring>
#include <string>

#include "tenon/base/text.h"
#include "tenon/checkpoint/file_kind.h"
#include "tenon/checkpoint/stored_types.h"

namespace tenon {
namespace {

namespace dom = simdjson::dom;

constexpr uint64_t kMaxHeader = 100'000'000;  // the format's own limit
constexpr std::string_view kDamaged = "the file is damaged; fix: download it again";

class HeaderReader {
 public:
  HeaderReader(const MappedFile& file, int file_index, StringArena& names)
      : file_(file), file_index_(file_index), names_(names) {}

  Status Read(std::vector<StoredTensor>& tensors) {
    TN_RETURN_IF_ERROR(FindHeader());
    const auto* header = reinterpret_cast<const char*>(file_.bytes().data()) + sizeof(uint64_t);
    const simdjson::padded_string json(header, static_cast<size_t>(header_bytes_));
    dom::parser parser;
    dom::object root;
    if (const auto error = parser.parse(json).get(root)) {
      return Error(fmt::format("the header is not a JSON object ({}); {}",
                               simdjson::error_message(error), kDamaged));
    }
    tensors.reserve(tensors.size() + root.size());
    for (const auto& [name, value] : root) {
      if (name == "__metadata__") continue;
      StoredTensor tensor;
      tensor.name = names_.Add(name);
      tensor.file = file_index_;
      TN_RETURN_IF_ERROR(ReadTensor(value, tensor), Context(name));
      tensors.push_back(tensor);
    }
    return {};
  }

 private:
  std::string Context(std::string_view name) const {
    return fmt::format("{}: tensor {}", file_.path(), QuotedName(name));
  }
  Status Error(std::string what) const { return Refused(file_.path() + ": " + std::move(what)); }

  Status FindHeader() {
    const auto bytes = file_.bytes();
    uint64_t length = 0;
    const FileKind kind = SniffFile(bytes);
    if (kind == FileKind::kOther && bytes.size() <= sizeof length) return Truncated(9);
    if (kind != FileKind::kSafetensors) {
      return WrongFile(file_.path(), bytes, "a safetensors file");
    }
    std::memcpy(&length, bytes.data(), sizeof length);
    if (length > kMaxHeader) {
      return Error(fmt::format("header length = {}, at most {} are allowed; {}", length, kMaxHeader,
                               kDamaged));
    }
    if (length > bytes.size() - sizeof length) return Truncated(sizeof length + length);
    header_bytes_ = static_cast<int64_t>(length);
    data_begin_ = header_bytes_ + static_cast<int64_t>(sizeof length);
    data_bytes_ = static_cast<int64_t>(bytes.size()) - data_begin_;
    return {};
  }

  Status Truncated(uint64_t needed) const {
    return Error(
        fmt::format("truncated: the file has {} bytes, its header needs {}; fix: download "
                    "it again",
                    file_.bytes().size(), needed));
  }

  Status ReadTensor(const dom::element& value, StoredTensor& tensor) {
    dom::object fields;
    if (value.get(fields)) return Refused(fmt::format("is no JSON object; {}", kDamaged));
    std::string_view dtype;
    if (fields["dtype"].get(dtype)) return Refused(fmt::format("has no dtype; {}", kDamaged));
    const std::optional<DType> known = SafetensorsType(dtype);
    tensor.supported = known.has_value();
    tensor.dtype = known.value_or(DType::kU8);
    tensor.type_name = names_.Add(dtype.substr(0, 64));
    TN_RETURN_IF_ERROR(ReadShape(fields, tensor));
    return ReadRange(fields, tensor);
  }

  static Status ReadShape(const dom::object& fields, StoredTensor& tensor) {
    dom::array shape;
    if (fields["shape"].get(shape)) return Refused(fmt::format("has no shape; {}", kDamaged));
    std::vector<int64_t> dims;
    for (const dom::element dim : shape) {
      int64_t n = 0;
      if (dim.get(n) || n < 0) {
        return Refused(fmt::format("shape holds {}, allowed: integers from 0 to 2^63 - 1; {}",
                                   simdjson::minify(dim).substr(0, 40), kDamaged));
      }
      dims.push_back(n);
      if (dims.size() > Shape::kMaxRank) {
        return Refused(fmt::format("has {} dimensions, at most {} are supported", shape.size(),
                                   static_cast<int>(Shape::kMaxRank)));
      }
    }
    const int32_t element_bytes = tensor.supported ? InfoOf(tensor.dtype).block_bytes : 1;
    if (!CheckedBytes(1, element_bytes, dims).has_value()) {
      return Refused(
          fmt::format("shape = {} has more than 2^63 bytes; {}", ShapeText(dims), kDamaged));
    }
    tensor.shape = Shape(std::span<const int64_t>(dims));
    return {};
  }

  Status ReadRange(const dom::object& fields, StoredTensor& tensor) const {
    dom::array offsets;
    if (fields["data_offsets"].get(offsets) || offsets.size() != 2) {
      return Refused(fmt::format("data_offsets is no pair of integers; {}", kDamaged));
    }
    uint64_t begin = 0;
    uint64_t end = 0;
    if (offsets.at(0).get(begin) || offsets.at(1).get(end)) {
      return Refused(fmt::format("data_offsets = {} is no pair of integers; {}",
                                 simdjson::minify(offsets).substr(0, 80), kDamaged));
    }
    if (begin > end) {
      return Refused(
          fmt::format("data_offsets = [{}, {}] ends before it begins; {}", begin, end, kDamaged));
    }
    if (end > static_cast<uint64_t>(data_bytes_)) {
      return Refused(fmt::format(
          "data_offsets = [{}, {}], but the file has {} bytes of data: it is truncated; fix: "
          "download it again",
          begin, end, data_bytes_));
    }
    tensor.offset = data_begin_ + static_cast<int64_t>(begin);
    tensor.bytes = static_cast<int64_t>(end - begin);
    if (!tensor.supported) return {};  // its element size is not known here
    const int64_t expected =
        *CheckedBytes(1, InfoOf(tensor.dtype).block_bytes, tensor.shape.dims());
    if (tensor.bytes != expected) {
      return Refused(fmt::format("data_offsets = [{}, {}] are {} bytes, {} {} needs {}; {}", begin,
                                 end, tensor.bytes, tensor.type_name, tensor.shape.Text(), expected,
                                 kDamaged));
    }
    return {};
  }

  const MappedFile& file_;
  int file_index_;
  StringArena& names_;
  int64_t header_bytes_ = 0;
  int64_t data_begin_ = 0;
  int64_t data_bytes_ = 0;
};

}  // namespace

Status ReadSafetensorsHeader(const MappedFile& file, int file_index, StringArena& names,
                             std::vector<StoredTensor>& tensors) {
  return HeaderReader(file, file_index, names).Read(tensors);
}

}  // namespace tenon
