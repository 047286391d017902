#include "tenon/checkpoint/gguf_reader.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstring>
#include <unordered_set>

#include "tenon/base/text.h"
#include "tenon/checkpoint/file_kind.h"
#include "tenon/checkpoint/stored_types.h"

namespace tenon {
namespace {

constexpr std::string_view kDamaged = "the file is truncated or damaged; fix: download it again";
constexpr uint64_t kDefaultAlignment = 32;
// Nested arrays exist in the format, not in real files; recursion needs some bound.
constexpr int kMaxArrayDepth = 8;
constexpr uint64_t kLargestNumber = uint64_t{1} << 62;

class Reader {
 public:
  Reader(const MappedFile& file, int file_index) : bytes_(file.bytes()), file_index_(file_index) {}

  Status ReadStart() {
    position_ = 4;  // the caller has seen the magic
    TN_RETURN_IF_ERROR(Read(version_), "reading the version");
    if (version_ != 0 && (version_ & 0xFFFF) == 0) {
      return Refused(
          "is a big-endian GGUF file, only little-endian ones are supported; fix: download or "
          "convert the little-endian file");
    }
    if (version_ != 2 && version_ != 3) {
      return Refused(fmt::format(
          "GGUF version = {}, supported: 2, 3; fix: download or convert a newer file", version_));
    }
    TN_RETURN_IF_ERROR(Read(num_tensors_), "reading the number of tensors");
    TN_RETURN_IF_ERROR(Read(num_keys_), "reading the number of metadata keys");
    return {};
  }

  Result<std::vector<GgufMetadata::Entry>> ReadEntries() {
    constexpr size_t kLeastBytes = 13;  // an empty key, a type and one byte
    TN_RETURN_IF_ERROR(CheckCount(num_keys_, kLeastBytes, "metadata keys"));
    std::vector<GgufMetadata::Entry> entries;
    entries.reserve(num_keys_);
    std::unordered_set<std::string_view> seen;
    for (uint64_t i = 0; i < num_keys_; ++i) {
      GgufMetadata::Entry entry;
      TN_RETURN_IF_ERROR(ReadString(entry.key), fmt::format("reading metadata key {}", i));
      if (!seen.insert(entry.key).second) {
        return Refused(
            fmt::format("metadata key {} occurs twice; {}", QuotedName(entry.key), kDamaged));
      }
      TN_RETURN_IF_ERROR(ReadValue(entry.value),
                         fmt::format("metadata key {}", QuotedName(entry.key)));
      entries.push_back(entry);
    }
    return entries;
  }

  Result<std::vector<StoredTensor>> ReadTensors() {
    constexpr size_t kLeastBytes = 8 + 4 + 8 + 4 + 8;  // name, rank, one dimension, type, offset
    TN_RETURN_IF_ERROR(CheckCount(num_tensors_, kLeastBytes, "tensors"));
    std::vector<StoredTensor> tensors(num_tensors_);
    for (uint64_t i = 0; i < num_tensors_; ++i) {
      TN_RETURN_IF_ERROR(ReadString(tensors[i].name),
                         fmt::format("reading the name of tensor {}", i));
      TN_RETURN_IF_ERROR(ReadTensor(tensors[i]),
                         fmt::format("tensor {}", QuotedName(tensors[i].name)));
    }
    return tensors;
  }

  // Turns offsets inside the data section into offsets in the file.
  Status PlaceTensors(std::vector<StoredTensor>& tensors, uint64_t alignment) const {
    const int64_t size = static_cast<int64_t>(bytes_.size());
    const int64_t unit = static_cast<int64_t>(alignment);
    const int64_t begin = (static_cast<int64_t>(position_) + unit - 1) & -unit;
    for (StoredTensor& tensor : tensors) {
      // Neither side can overflow: an offset is at most 2^62, a size less than 2^63.
      if (begin + tensor.offset > size || tensor.bytes > size - begin - tensor.offset) {
        return Refused(fmt::format(
            "tensor {}: {} bytes at offset {} of the data section (byte {}) pass the file's end at "
            "{}: it is truncated; fix: download it again",
            QuotedName(tensor.name), tensor.bytes, tensor.offset, begin, size));
      }
      tensor.offset += begin;
    }
    return {};
  }

  uint32_t version() const { return version_; }

 private:
  size_t remaining() const { return bytes_.size() - position_; }

  Status Truncated(uint64_t needed) const {
    return Refused(fmt::format("{} bytes needed at byte {}, the file has {} bytes; {}", needed,
                               position_, bytes_.size(), kDamaged));
  }

  template <typename T>
  Status Read(T& value) {
    if (remaining() < sizeof value) return Truncated(sizeof value);
    std::memcpy(&value, bytes_.data() + position_, sizeof value);
    position_ += sizeof value;
    return {};
  }

  Status ReadString(std::string_view& text) {
    uint64_t length = 0;
    TN_RETURN_IF_ERROR(Read(length));
    if (length > remaining()) {
      return Refused(fmt::format("string of {} bytes at byte {} passes the file's end at {}; {}",
                                 length, position_, bytes_.size(), kDamaged));
    }
    text = {reinterpret_cast<const char*>(bytes_.data()) + position_, length};
    position_ += length;
    return {};
  }

  // So many things of at least so many bytes must fit what is left: nothing is reserved before.
  Status CheckCount(uint64_t count, size_t least_bytes, std::string_view what) const {
    if (count <= remaining() / least_bytes) return {};
    return Refused(fmt::format("number of {} = {}, but only {} bytes follow; {}", what, count,
                               remaining(), kDamaged));
  }

  Status ReadType(GgufType& type) {
    uint32_t number = 0;
    TN_RETURN_IF_ERROR(Read(number));
    if (number > static_cast<uint32_t>(GgufType::kFloat64)) {
      return Refused(
          fmt::format("value type = {}, known: 0 (uint8) to 12 (float64); {}", number, kDamaged));
    }
    type = static_cast<GgufType>(number);
    return {};
  }

  Status ReadValue(GgufValue& value) {
    GgufType type = GgufType::kUint8;
    TN_RETURN_IF_ERROR(ReadType(type));
    const size_t begin = position_;
    TN_RETURN_IF_ERROR(Skip(type, 0));
    value = GgufValue(type, bytes_.subspan(begin, position_ - begin));
    return {};
  }

  Status Skip(GgufType type, int depth) {
    if (type == GgufType::kString) {
      std::string_view ignored;
      return ReadString(ignored);
    }
    if (type == GgufType::kArray) return SkipArray(depth);
    return SkipFixed(type, 1);
  }

  Status SkipFixed(GgufType type, uint64_t count) {
    const uint64_t bytes = count * static_cast<uint64_t>(FixedBytes(type));
    if (bytes > remaining()) return Truncated(bytes);
    if (type == GgufType::kBool) {
      for (uint64_t i = 0; i < count; ++i) {
        const auto value = static_cast<int>(bytes_[position_ + i]);
        if (value > 1) {
          return Refused(fmt::format("bool = {}, allowed: 0, 1; {}", value, kDamaged));
        }
      }
    }
    position_ += bytes;
    return {};
  }

  Status SkipArray(int depth) {
    if (depth >= kMaxArrayDepth) {
      return Refused(fmt::format("arrays nested deeper than {}; {}", kMaxArrayDepth, kDamaged));
    }
    GgufType type = GgufType::kUint8;
    uint64_t count = 0;
    TN_RETURN_IF_ERROR(ReadType(type));
    TN_RETURN_IF_ERROR(Read(count));
    const size_t least = type == GgufType::kString  ? sizeof(uint64_t)
                         : type == GgufType::kArray ? sizeof(uint32_t) + sizeof(uint64_t)
                                                    : static_cast<size_t>(FixedBytes(type));
    TN_RETURN_IF_ERROR(CheckCount(count, least, "array elements"));
    if (FixedBytes(type) > 0) return SkipFixed(type, count);
    for (uint64_t i = 0; i < count; ++i) TN_RETURN_IF_ERROR(Skip(type, depth + 1));
    return {};
  }

  Status ReadTensor(StoredTensor& tensor) {
    std::array<int64_t, Shape::kMaxRank> dims{};
    uint32_t rank = 0;
    TN_RETURN_IF_ERROR(Read(rank));
    if (rank == 0 || rank > Shape::kMaxRank) {
      return Refused(fmt::format("number of dimensions = {}, allowed: 1 to {}; {}", rank,
                                 static_cast<int>(Shape::kMaxRank), kDamaged));
    }
    // The file lists the row length first; shapes here are outermost first.
    for (uint32_t i = 0; i < rank; ++i) {
      uint64_t n = 0;
      TN_RETURN_IF_ERROR(Read(n));
      if (n == 0 || n > kLargestNumber) {
        return Refused(fmt::format("dimension {} = {}, allowed: 1 to 2^62; {}", i, n, kDamaged));
      }
      dims[rank - 1 - i] = static_cast<int64_t>(n);
    }
    tensor.file = file_index_;
    uint32_t type = 0;
    uint64_t offset = 0;
    TN_RETURN_IF_ERROR(Read(type));
    TN_RETURN_IF_ERROR(Read(offset));
    TN_RETURN_IF_ERROR(SetType(type, std::span<const int64_t>(dims.data(), rank), tensor));
    if (offset > kLargestNumber) {
      return Refused(fmt::format("offset = {}, but the file has {} bytes; {}", offset,
                                 bytes_.size(), kDamaged));
    }
    tensor.offset = static_cast<int64_t>(offset);
    return {};
  }

  static Status SetType(uint32_t number, std::span<const int64_t> dims, StoredTensor& tensor) {
    const std::optional<StoredType> type = GgmlType(number);
    if (!type.has_value()) {
      return Refused(
          fmt::format("tensor type = {} is unknown; supported: {}", number, SupportedGgmlTypes()));
    }
    if (type->block_bytes == 0) {
      return Refused(fmt::format(
          "tensor type {} ({}) was removed from GGUF; supported: {}; fix: download or convert a "
          "newer file",
          type->name, number, SupportedGgmlTypes()));
    }
    if (dims.back() % type->block_elements != 0) {
      return Refused(fmt::format("row length = {}, {} stores blocks of {}; {}", dims.back(),
                                 type->name, type->block_elements, kDamaged));
    }
    const std::optional<int64_t> bytes =
        CheckedBytes(type->block_elements, type->block_bytes, dims);
    if (!bytes.has_value()) {
      return Refused(
          fmt::format("shape = {} has more than 2^63 bytes; {}", ShapeText(dims), kDamaged));
    }
    tensor.type_name = type->name;
    tensor.type_number = static_cast<int>(number);
    tensor.supported = type->dtype.has_value();
    tensor.dtype = type->dtype.value_or(DType::kU8);
    tensor.shape = Shape(dims);
    tensor.bytes = *bytes;
    return {};
  }

  std::span<const std::byte> bytes_;
  int file_index_;
  size_t position_ = 0;
  uint32_t version_ = 0;
  uint64_t num_tensors_ = 0;
  uint64_t num_keys_ = 0;
};

Result<uint64_t> AlignmentOf(const GgufMetadata& metadata) {
  const GgufValue* value = metadata.Find("general.alignment");
  if (value == nullptr) return kDefaultAlignment;
  const std::optional<int64_t> alignment = value->AsInt();
  constexpr int64_t kLargest = int64_t{1} << 30;
  if (!alignment.has_value() || *alignment <= 0 || *alignment > kLargest ||
      !std::has_single_bit(static_cast<uint64_t>(*alignment))) {
    return Refused(fmt::format(
        "metadata key \"general.alignment\" = {}, allowed: a power of two up to 2^30; {}",
        alignment.has_value() ? fmt::format("{}", *alignment) : value->KindText(), kDamaged));
  }
  return static_cast<uint64_t>(*alignment);
}

Result<GgufFile> ReadAll(const MappedFile& file, int file_index) {
  Reader reader(file, file_index);
  TN_RETURN_IF_ERROR(reader.ReadStart());
  TN_ASSIGN_OR_RETURN(std::vector<GgufMetadata::Entry> entries, reader.ReadEntries());
  GgufFile result;
  result.metadata = GgufMetadata(file.path(), reader.version(), std::move(entries));
  TN_ASSIGN_OR_RETURN(const uint64_t alignment, AlignmentOf(result.metadata));
  TN_ASSIGN_OR_RETURN(result.tensors, reader.ReadTensors());
  TN_RETURN_IF_ERROR(reader.PlaceTensors(result.tensors, alignment));
  return result;
}

}  // namespace

Result<GgufFile> ReadGgufHeader(const MappedFile& file, int file_index) {
  if (SniffFile(file.bytes()) != FileKind::kGguf) {
    return WrongFile(file.path(), file.bytes(), "a GGUF file");
  }
  return ReadAll(file, file_index).WithContext(file.path());
}

}  // namespace tenon
