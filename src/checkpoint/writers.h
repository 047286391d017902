// Writes safetensors and GGUF files: tensors are fetched, written and released one at a time, and
// the file appears under its name only when it is whole. Not a converter: names, types and metadata
// are the caller's. One writer per file; different files from different threads.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tenon/base/status.h"
#include "tenon/checkpoint/gguf.h"
#include "tenon/checkpoint/tensor_index.h"

namespace tenon {

struct OutputTensor {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;  // outermost first, for GGUF too
  // Called once, in the order of the file; the view must be contiguous and as declared.
  std::function<Result<LoadedTensor>()> load;

  // Bytes that stay valid until the file is written.
  static OutputTensor Of(std::string name, const TensorView& view);
};

// Data is ordered by element size, largest first, so that every tensor is aligned. kRefused: a type
// that safetensors has no name for (block formats), a name twice.
Status WriteSafetensors(const std::string& path, std::span<const OutputTensor> tensors,
                        const std::map<std::string, std::string>& metadata = {});

// Metadata to write, in the order of the first Set of each key.
class GgufBuilder {
 public:
  GgufBuilder& SetUint32(std::string key, uint32_t value);
  GgufBuilder& SetInt32(std::string key, int32_t value);
  GgufBuilder& SetUint64(std::string key, uint64_t value);
  GgufBuilder& SetFloat32(std::string key, float value);
  GgufBuilder& SetBool(std::string key, bool value);
  GgufBuilder& SetString(std::string key, std::string_view value);
  GgufBuilder& SetInt32s(std::string key, std::span<const int32_t> values);
  GgufBuilder& SetFloat32s(std::string key, std::span<const float> values);
  GgufBuilder& SetStrings(std::string key, std::span<const std::string_view> values);
  // A value as another file stores it.
  GgufBuilder& Copy(std::string_view key, const GgufValue& value);
  // Any value: the bytes that follow the type number.
  GgufBuilder& SetEncoded(std::string key, GgufType type, std::string encoded);

  struct Entry {
    std::string key;
    GgufType type;
    std::string encoded;
  };
  std::span<const Entry> entries() const { return entries_; }

 private:
  std::vector<Entry> entries_;
};

// Version 3, little-endian; tensor data is aligned to general.alignment (32 when unset). Scalars
// are written as [1]. kRefused: a type that GGUF has no number for, no elements, more than four
// dimensions, a name twice, an alignment that is no power of two.
Status WriteGguf(const std::string& path, const GgufBuilder& metadata,
                 std::span<const OutputTensor> tensors);

}  // namespace tenon
