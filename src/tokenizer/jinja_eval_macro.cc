#include <fmt/format.h>

#include "tenon/tokenizer/jinja_eval.h"
#include "tenon/tokenizer/jinja_objects.h"

namespace tenon::jinja {

// Jinja's order: positional values, named ones, then caller, kwargs and varargs where the body
// reads them; what is left over is an error.
Status Evaluator::BindMacroArguments(const MacroCode& code, const Args& args, Scope& scope) {
  const size_t count = code.parameters.size();
  std::vector<bool> named_used(args.named.size());
  for (size_t i = 0; i < count; ++i) {
    Value value = Value::Missing();
    if (i < args.positional.size()) {
      value = args.positional[i];
    } else {
      for (size_t n = 0; n < args.named.size(); ++n) {
        if (args.named[n].first.text() != code.parameters[i].second.text()) continue;
        value = args.named[n].second;
        named_used[n] = true;
      }
    }
    scope.variables.emplace_back(code.parameters[i].first, std::move(value));
  }
  TN_RETURN_IF_ERROR(BindSpecialArguments(code, args, named_used, scope));
  // Defaults come last, so that one may read the parameters before it.
  const size_t first_default = count - code.defaults.size();
  for (size_t i = 0; i < count; ++i) {
    if (!scope.variables[i].second.is_missing()) continue;
    Value value = Value::Undefined(
        {{}, {}, fmt::format("parameter '{}' was not given", code.parameters[i].second.text())});
    if (i >= first_default) {
      TN_ASSIGN_OR_RETURN(value, Eval(*code.defaults[i - first_default]));
    }
    scope.variables[i].second = std::move(value);
  }
  return {};
}

Status Evaluator::BindSpecialArguments(const MacroCode& code, const Args& args,
                                       std::vector<bool>& named_used, Scope& scope) {
  const auto name_of = [&] {
    return code.name.empty() ? std::string("the call block") : fmt::format("macro '{}'", code.name);
  };
  if (code.uses_caller) {
    Value caller = Value::Undefined({{}, {}, "no caller is defined here"});
    for (size_t n = 0; n < args.named.size(); ++n) {
      if (args.named[n].first.text() != "caller") continue;
      if (!args.named[n].second.is_none()) caller = args.named[n].second;
      named_used[n] = true;
    }
    scope.variables.emplace_back(program_.caller_id, std::move(caller));
  }
  std::vector<Dict::Entry> rest;
  for (size_t n = 0; n < args.named.size(); ++n) {
    if (!named_used[n]) rest.push_back(args.named[n]);
  }
  if (code.uses_kwargs) {
    scope.variables.emplace_back(program_.kwargs_id, runtime_.MakeDict(std::move(rest)));
  } else if (!rest.empty()) {
    return Refused(fmt::format("{} takes no argument named '{}'", name_of(), rest[0].first.text()));
  }
  const size_t count = code.parameters.size();
  if (code.uses_varargs) {
    Values more;
    for (size_t i = count; i < args.positional.size(); ++i) more.push_back(args.positional[i]);
    scope.variables.emplace_back(program_.varargs_id, runtime_.Tuple(std::move(more)));
  } else if (args.positional.size() > count) {
    return Refused(fmt::format("{} takes not more than {} arguments, {} given", name_of(), count,
                               args.positional.size()));
  }
  return {};
}

Result<Value> Evaluator::InvokeMacro(const MacroCode& code, const ScopePtr& definition_scope,
                                     const Args& args) {
  const Nesting nesting(runtime_);
  if (nesting.too_deep()) return nesting.Error();
  auto scope = MakeScope(definition_scope);
  // Defaults are evaluated inside the new scope, which Capture then enters for the body.
  const ScopePtr outer = std::exchange(scope_, scope);
  const Status bound = BindMacroArguments(code, args, *scope);
  scope_ = outer;
  TN_RETURN_IF_ERROR(bound);
  std::string text;
  TN_RETURN_IF_ERROR(Capture(code.body, std::move(scope), text).status());
  return TextOf(std::move(text));
}

}  // namespace tenon::jinja
