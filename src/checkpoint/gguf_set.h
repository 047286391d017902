// Split GGUF sets ("split.no", "split.count", names "...-00001-of-0000N.gguf") and files that are
// no model on their own. Internal to this layer; thread-safe. Source: llama.cpp, tools/gguf-split.
#pragma once

#include <string>
#include <vector>

#include "tenon/base/status.h"
#include "tenon/checkpoint/gguf.h"

namespace tenon {

// kRefused for an adapter, a vision projector, an importance matrix ("general.type").
Status CheckGgufIsModel(const GgufMetadata& metadata, const std::string& path);

// Paths of all parts, in order, given any of them; empty when the file is not split. kRefused when
// parts are missing (naming them) or the file's name is not that of its part.
Result<std::vector<std::string>> GgufPartPaths(const GgufMetadata& metadata,
                                               const std::string& path);

// Is this the metadata of part `index` (0-based) of a set of `count`?
Status CheckGgufPart(const GgufMetadata& metadata, const std::string& path, int index, int count);
// The first part says how many tensors the set has.
Status CheckGgufTensorCount(const GgufMetadata& first, const std::string& path, size_t found);

}  // namespace tenon
