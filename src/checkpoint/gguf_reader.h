// The header of one GGUF file, version 2 or 3, little-endian: metadata and tensor directory. Split
// sets are put together by the caller. Internal to this layer; thread-safe.
// Source of the format: ggml/docs/gguf.md.
#pragma once

#include <vector>

#include "tenon/base/file.h"
#include "tenon/base/status.h"
#include "tenon/checkpoint/gguf.h"
#include "tenon/checkpoint/stored_tensor.h"

namespace tenon {

struct GgufFile {
  GgufMetadata metadata;
  std::vector<StoredTensor> tensors;
};

// Verifies every length, type, dimension and offset against the file's size. Views point into
// `file`. Repeated tensor names are the caller's to find (it sees all parts).
Result<GgufFile> ReadGgufHeader(const MappedFile& file, int file_index);

}  // namespace tenon
