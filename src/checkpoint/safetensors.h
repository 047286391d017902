// The header of one safetensors file (https://github.com/huggingface/safetensors, "Format"): an
// 8-byte length, JSON, data. Only the header is read. Internal to this layer; thread-safe.
#pragma once

#include <vector>

#include "tenon/base/file.h"
#include "tenon/base/status.h"
#include "tenon/checkpoint/stored_tensor.h"
#include "tenon/checkpoint/string_arena.h"

namespace tenon {

// Appends the file's tensors, whose names go to `names`. Everything is verified: header length,
// JSON, ranges inside the file, bytes against shape and type. Repeated names within the file are
// the caller's to find (it sees all files).
Status ReadSafetensorsHeader(const MappedFile& file, int file_index, StringArena& names,
                             std::vector<StoredTensor>& tensors);

}  // namespace tenon
