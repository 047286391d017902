// Which weight files a Hugging Face directory has: one file, shards with an index, numbered shards
// without one, or none; and why a directory is incomplete. Looks at names and at the index, not
// into weight files. Internal to this layer; thread-safe.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "tenon/base/status.h"

namespace tenon {

struct HfWeights {
  std::vector<std::string> files;  // names inside the directory; none: it holds no weights
  // The index: tensor -> position in `files`. Empty when there is no index.
  std::unordered_map<std::string, int> shard_of;
  std::vector<std::string> notes;  // what was there and not used
};

// kRefused: no file known here, pickle weights only, an adapter without its base, missing shards, a
// broken index.
Result<HfWeights> FindHfWeights(const std::string& directory);
// kRefused unless the directory holds at least one file that some command uses.
Status CheckHfDirectory(const std::string& directory);

}  // namespace tenon
