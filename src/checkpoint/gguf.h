// GGUF metadata: typed keys and values that point into the mapped file, so a vocabulary of any size
// costs no copies until it is asked for. Not the tensors (checkpoint.h) and not the meaning of keys
// (config/, zoo/). Immutable views, valid as long as the Checkpoint; thread-safe.
// Source of the format: ggml/docs/gguf.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tenon/base/status.h"

namespace tenon {

enum class GgufType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};
std::string_view NameOf(GgufType type);
// Bytes of one value; 0 for strings and arrays, whose size varies.
int64_t FixedBytes(GgufType type);

// One value, verified when the file was opened. As…() give nothing when the value is of another
// kind (or does not fit), they never convert silently.
class GgufValue {
 public:
  GgufValue() = default;
  // encoded: the bytes after the type number, exactly as the file stores them.
  GgufValue(GgufType type, std::span<const std::byte> encoded) : type_(type), encoded_(encoded) {}

  GgufType type() const { return type_; }
  bool is_array() const { return type_ == GgufType::kArray; }
  GgufType element_type() const;  // arrays only
  int64_t count() const;          // elements of an array, else 1
  std::span<const std::byte> encoded() const { return encoded_; }
  std::string KindText() const;  // "int32", "array of 49152 string"

  std::optional<int64_t> AsInt() const;   // any integer type that fits 63 bits
  std::optional<double> AsFloat() const;  // any number
  std::optional<bool> AsBool() const;
  std::optional<std::string_view> AsString() const;  // not always valid UTF-8
  std::optional<std::vector<int64_t>> AsInts() const;
  std::optional<std::vector<double>> AsFloats() const;
  std::optional<std::vector<bool>> AsBools() const;
  std::optional<std::vector<std::string_view>> AsStrings() const;
  // The elements of any array, nested ones too; nothing for other values.
  std::optional<std::vector<GgufValue>> AsArray() const;

 private:
  std::span<const std::byte> elements() const { return encoded_.subspan(12); }  // of an array
  GgufType type_ = GgufType::kUint8;
  std::span<const std::byte> encoded_;
};

class GgufMetadata {
 public:
  struct Entry {
    std::string_view key;
    GgufValue value;
  };

  GgufMetadata() = default;
  GgufMetadata(std::string path, uint32_t version, std::vector<Entry> entries);

  uint32_t version() const { return version_; }
  std::span<const Entry> entries() const { return entries_; }  // in the file's order
  const GgufValue* Find(std::string_view key) const;
  bool Has(std::string_view key) const { return Find(key) != nullptr; }

  // kRefused when the key is absent (near keys) or of another kind.
  Result<int64_t> Int(std::string_view key) const;
  Result<double> Float(std::string_view key) const;
  Result<bool> Bool(std::string_view key) const;
  Result<std::string_view> String(std::string_view key) const;
  Result<std::vector<int64_t>> Ints(std::string_view key) const;
  Result<std::vector<double>> Floats(std::string_view key) const;
  Result<std::vector<bool>> Bools(std::string_view key) const;
  Result<std::vector<std::string_view>> Strings(std::string_view key) const;

  // One number for every layer or an array with one for each: always [num_layers].
  Result<std::vector<int64_t>> IntsPerLayer(std::string_view key, int num_layers) const;
  Result<std::vector<double>> FloatsPerLayer(std::string_view key, int num_layers) const;
  Result<std::vector<bool>> BoolsPerLayer(std::string_view key, int num_layers) const;

 private:
  std::string path_;
  uint32_t version_ = 0;
  std::vector<Entry> entries_;
  std::unordered_map<std::string_view, int> by_key_;
};

}  // namespace tenon
