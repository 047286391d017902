// What `tenon models` and docs/models.md say: lists made from the index and from what open
// externals registered. Listing opens no provider; the matrix does. Thread-safe.
#pragma once

#include <string>
#include <vector>

#include "tenon/base/json.h"
#include "tenon/registry/registry.h"

namespace tenon {

// One line of the list.
struct ListedModel {
  std::string architecture;
  std::string model_type;
  std::string family;  // the provider: a family of ours or a library's path
  std::string kind;
  std::string status;   // "stable", "not built", "external"
  std::string version;  // ours: that first served it
  bool served = false;
  std::string why_not;            // of one that is not served
  std::vector<std::string> gguf;  // general.architecture values that may lead to it
};

// In the index's order, then what externals serve beside it.
std::vector<ListedModel> ListModels(const Registry& registry);
// Those whose architecture, family or model_type is `name`, in any case. kRefused with near names:
// none.
Result<std::vector<ListedModel>> ListModels(const Registry& registry, const std::string& name);

// OK when one of them is served, else kRefused with each one's reason.
Status CheckServed(const std::vector<ListedModel>& models);

Json ToJson(const ListedModel& model);

// The table of docs/models.md: every served architecture with what its family declared. Opens the
// providers.
std::string ModelMatrix(Registry& registry);

}  // namespace tenon
