#include <fmt/format.h>

#include "tenon/tokenizer/jinja_eval.h"
#include "tenon/tokenizer/jinja_filters.h"
#include "tenon/tokenizer/jinja_methods.h"
#include "tenon/tokenizer/jinja_print.h"
#include "tenon/tokenizer/jinja_tests.h"

namespace tenon::jinja {

Result<Value> Evaluator::Eval(const Expr& expr) {
  if (!runtime_.Work(1)) return runtime_.failure();
  Result<Value> value = EvalKind(expr);
  if (!value.ok() && error_line_ == 0) error_line_ = expr.line;
  return value;
}

Result<Value> Evaluator::EvalKind(const Expr& expr) {
  if (expr.kind == ExprKind::kConst) return static_cast<const ConstExpr&>(expr).value;
  if (expr.kind == ExprKind::kName) return EvalName(static_cast<const NameExpr&>(expr));
  const Nesting nesting(runtime_);
  if (nesting.too_deep()) return nesting.Error();
  // Each case in a function of its own keeps this frame, which recursion repeats, small.
  switch (expr.kind) {
    case ExprKind::kTuple:
    case ExprKind::kList:
      return EvalItems(static_cast<const PartsExpr&>(expr));
    case ExprKind::kDict:
      return EvalDict(static_cast<const DictExpr&>(expr));
    case ExprKind::kAttribute:
      return EvalAttribute(static_cast<const AttributeExpr&>(expr));
    case ExprKind::kItem:
      return EvalItem(static_cast<const ItemExpr&>(expr));
    case ExprKind::kSlice:
      return EvalSlice(static_cast<const SliceExpr&>(expr));
    case ExprKind::kCall:
      return EvalCall(static_cast<const CallExpr&>(expr), nullptr);
    case ExprKind::kFilter:
      return EvalFilter(static_cast<const FilterExpr&>(expr));
    case ExprKind::kTest:
      return EvalTest(static_cast<const TestExpr&>(expr));
    case ExprKind::kNegate:
    case ExprKind::kPlus:
    case ExprKind::kNot:
      return EvalUnary(static_cast<const PartsExpr&>(expr));
    case ExprKind::kBinary:
      return EvalBinary(static_cast<const BinaryExpr&>(expr));
    case ExprKind::kCompare:
      return EvalCompare(static_cast<const CompareExpr&>(expr));
    case ExprKind::kAnd:
    case ExprKind::kOr:
      return EvalLogic(static_cast<const PartsExpr&>(expr));
    case ExprKind::kConcat:
      return EvalConcat(static_cast<const PartsExpr&>(expr));
    case ExprKind::kConditional:
      return EvalConditional(static_cast<const ConditionalExpr&>(expr));
    default:
      return InternalError("an expression of unknown kind");
  }
}

Result<Value> Evaluator::EvalName(const NameExpr& name) {
  Value value = Lookup(name.id);
  if (!value.is_missing()) return value;
  return Value::Undefined({{}, program_.names[static_cast<size_t>(name.id)], {}});
}

Result<Value> Evaluator::EvalItems(const PartsExpr& items) {
  TN_ASSIGN_OR_RETURN(Values values, EvalParts(items.parts));
  return items.kind == ExprKind::kList ? runtime_.List(std::move(values))
                                       : runtime_.Tuple(std::move(values));
}

Result<Value> Evaluator::EvalAttribute(const AttributeExpr& attribute) {
  TN_ASSIGN_OR_RETURN(const Value object, Eval(*attribute.object));
  return GetAttribute(runtime_, object, attribute.name);
}

Result<Value> Evaluator::EvalItem(const ItemExpr& item) {
  TN_ASSIGN_OR_RETURN(const Value object, Eval(*item.object));
  TN_ASSIGN_OR_RETURN(const Value key, Eval(*item.key));
  return GetItem(runtime_, object, key);
}

Result<Value> Evaluator::EvalUnary(const PartsExpr& unary) {
  TN_ASSIGN_OR_RETURN(const Value value, Eval(*unary.parts[0]));
  if (unary.kind == ExprKind::kNot) return Value(!Truth(value));
  return unary.kind == ExprKind::kNegate ? Negate(value) : Plus(value);
}

Result<Values> Evaluator::EvalParts(const std::vector<ExprPtr>& parts) {
  Values values;
  values.reserve(parts.size());
  for (const ExprPtr& part : parts) {
    TN_ASSIGN_OR_RETURN(Value value, Eval(*part));
    values.push_back(std::move(value));
  }
  return values;
}

Result<Value> Evaluator::EvalDict(const DictExpr& dict) {
  std::vector<Dict::Entry> entries;
  entries.reserve(dict.entries.size());
  for (const auto& [key_expr, value_expr] : dict.entries) {
    TN_ASSIGN_OR_RETURN(Value key, Eval(*key_expr));
    TN_ASSIGN_OR_RETURN(Value value, Eval(*value_expr));
    if (!IsHashable(key)) {
      return Refused(fmt::format("'{}' cannot be a dictionary key", key.TypeName()));
    }
    entries.emplace_back(std::move(key), std::move(value));
  }
  return runtime_.MakeDict(std::move(entries));
}

Result<Value> Evaluator::EvalSlice(const SliceExpr& slice) {
  TN_ASSIGN_OR_RETURN(const Value object, Eval(*slice.object));
  Value bounds[3];
  const ExprPtr* exprs[] = {&slice.start, &slice.stop, &slice.step};
  for (size_t i = 0; i < 3; ++i) {
    if (*exprs[i] == nullptr) continue;
    TN_ASSIGN_OR_RETURN(bounds[i], Eval(**exprs[i]));
  }
  return GetSlice(runtime_, object, bounds[0], bounds[1], bounds[2]);
}

Result<Args> Evaluator::EvalArguments(const ArgumentList& list, const Value* caller) {
  Args args;
  TN_ASSIGN_OR_RETURN(args.positional, EvalParts(list.positional));
  for (const auto& [name, expr] : list.named) {
    TN_ASSIGN_OR_RETURN(Value value, Eval(*expr));
    args.named.emplace_back(name, std::move(value));
  }
  if (list.star != nullptr) {
    TN_ASSIGN_OR_RETURN(const Value more, Eval(*list.star));
    TN_ASSIGN_OR_RETURN(const Values items, ToItems(runtime_, more));
    args.positional.insert(args.positional.end(), items.begin(), items.end());
  }
  if (list.double_star != nullptr) {
    TN_ASSIGN_OR_RETURN(const Value more, Eval(*list.double_star));
    if (!more.is_dict()) return Refused("** wants a dictionary");
    for (const auto& [key, value] : more.dict()->entries) {
      if (!key.is_text()) return Refused("names of ** arguments must be str");
      args.named.emplace_back(key, value);
    }
  }
  if (caller != nullptr) args.named.emplace_back(Value::ConstantText("caller"), *caller);
  return args;
}

Result<Value> Evaluator::EvalCall(const CallExpr& call, const Value* caller) {
  Value callee;
  if (call.callee->kind == ExprKind::kAttribute) {
    const auto& attribute = static_cast<const AttributeExpr&>(*call.callee);
    TN_ASSIGN_OR_RETURN(const Value object, Eval(*attribute.object));
    const MethodEntry* method = FindMethod(object, attribute.name);
    if (method != nullptr && method->function != nullptr) {
      TN_ASSIGN_OR_RETURN(const Args args, EvalArguments(call.arguments, caller));
      runtime_.Work(object.is_text() ? static_cast<int64_t>(object.text().size() / 64) : 0);
      return method->function(runtime_, object, args);
    }
    TN_ASSIGN_OR_RETURN(callee, GetAttribute(runtime_, object, attribute.name));
  } else {
    TN_ASSIGN_OR_RETURN(callee, Eval(*call.callee));
  }
  if (callee.is_undefined()) return UndefinedError(callee);
  if (!callee.is_object() || !callee.object()->callable()) {
    return Refused(fmt::format("'{}' object is not callable", callee.TypeName()));
  }
  TN_ASSIGN_OR_RETURN(const Args args, EvalArguments(call.arguments, caller));
  return callee.object()->Call(runtime_, args);
}

Result<Value> Evaluator::EvalFilter(const FilterExpr& filter) {
  if (filter.entry == nullptr) {
    return Refused(fmt::format("no filter named '{}'", filter.name));
  }
  Value input = block_text_;
  if (filter.input != nullptr) {
    TN_ASSIGN_OR_RETURN(input, Eval(*filter.input));
  }
  TN_ASSIGN_OR_RETURN(const Args args, EvalArguments(filter.arguments, nullptr));
  return CallFilter(runtime_, *filter.entry, input, args);
}

Result<Value> Evaluator::EvalTest(const TestExpr& test) {
  if (test.entry == nullptr) return Refused(fmt::format("no test named '{}'", test.name));
  TN_ASSIGN_OR_RETURN(const Value input, Eval(*test.input));
  TN_ASSIGN_OR_RETURN(const Args args, EvalArguments(test.arguments, nullptr));
  TN_ASSIGN_OR_RETURN(const bool holds, CallTest(runtime_, *test.entry, input, args));
  return Value(holds);
}

Result<Value> Evaluator::EvalBinary(const BinaryExpr& binary) {
  TN_ASSIGN_OR_RETURN(const Value left, Eval(*binary.left));
  TN_ASSIGN_OR_RETURN(const Value right, Eval(*binary.right));
  return Calculate(runtime_, binary.op, left, right);
}

Result<Value> Evaluator::EvalCompare(const CompareExpr& compare) {
  TN_ASSIGN_OR_RETURN(Value left, Eval(*compare.first));
  for (const auto& [op, expr] : compare.rest) {
    TN_ASSIGN_OR_RETURN(Value right, Eval(*expr));
    TN_ASSIGN_OR_RETURN(const bool holds, Compare(runtime_, op, left, right));
    if (!holds) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Result<Value> Evaluator::EvalLogic(const PartsExpr& logic) {
  const bool stop_at = logic.kind == ExprKind::kOr;
  Value value;
  for (const ExprPtr& part : logic.parts) {
    TN_ASSIGN_OR_RETURN(value, Eval(*part));
    if (Truth(value) == stop_at) break;
  }
  return value;
}

Result<Value> Evaluator::EvalConcat(const PartsExpr& concat) {
  TN_ASSIGN_OR_RETURN(const Values values, EvalParts(concat.parts));
  bool markup = false;
  for (const Value& value : values) {
    markup = markup || (runtime_.autoescape && value.is_markup());
  }
  std::string text;
  for (const Value& value : values) {
    TN_RETURN_IF_ERROR(markup ? AppendEscapedValue(runtime_, value, text)
                              : AppendStr(runtime_, value, text));
  }
  return runtime_.String(std::move(text), markup);
}

Result<Value> Evaluator::EvalConditional(const ConditionalExpr& conditional) {
  TN_ASSIGN_OR_RETURN(const Value condition, Eval(*conditional.condition));
  if (Truth(condition)) return Eval(*conditional.then);
  if (conditional.otherwise != nullptr) return Eval(*conditional.otherwise);
  return Value::Undefined(
      {{},
       {},
       fmt::format("the if-expression on line {} has no else and was false", conditional.line)});
}

}  // namespace tenon::jinja
