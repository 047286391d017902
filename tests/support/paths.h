// Where tests find their data. `Shared…` files are large and optional: a test that needs them says
// in one line that they are absent and passes nothing by silence.
#pragma once

#include <string>

namespace tenon::test {

// A file of tests/, e.g. DataPath("goldens/llama").
inline std::string DataPath(const std::string& relative) {
  return std::string(TN_TEST_SOURCE_DIR) + "/tests/" + relative;
}
// A file of the optional shared folder; empty when the folder is not configured.
inline std::string SharedPath(const std::string& relative) {
  const std::string root = TN_TEST_SHARED_DIR;
  return root.empty() ? std::string() : root + "/" + relative;
}

}  // namespace tenon::test
