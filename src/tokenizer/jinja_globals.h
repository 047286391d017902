// The functions every chat template may call: range, dict, namespace, joiner, cycler,
// raise_exception, strftime_now; and the objects that they make. `lipsum` is known but refused (it
// is random). Stateless but for the objects, which belong to one render.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tenon/tokenizer/jinja_runtime.h"

namespace tenon::jinja {

// Missing when there is no such function.
Value FindGlobal(Runtime& runtime, std::string_view name);

// namespace(...): the one thing that a template can change.
class NamespaceObject : public Object {
 public:
  std::string_view TypeName() const override { return "Namespace"; }
  Status AppendRepr(Runtime& runtime, std::string& out) const override;
  Result<Value> Attribute(Runtime& runtime, std::string_view name) override;
  void Release() override { members_.clear(); }
  // Error: a name that starts with an underscore.
  Status Set(Runtime& runtime, std::string_view name, Value value);

 private:
  Value* Find(Runtime& runtime, std::string_view name);
  std::vector<std::pair<std::string, Value>> members_;
};

}  // namespace tenon::jinja
