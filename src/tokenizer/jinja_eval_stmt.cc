#include <fmt/format.h>

#include <algorithm>

#include "tenon/tokenizer/jinja_eval.h"
#include "tenon/tokenizer/jinja_globals.h"
#include "tenon/tokenizer/jinja_objects.h"
#include "tenon/tokenizer/jinja_print.h"
#include "tenon/tokenizer/jinja_unicode.h"

namespace tenon::jinja {

// Makes `scope` the current one while it lives. A scope that macros still refer to afterwards is
// kept until the render ends, and emptied then: it may refer to itself through them.
class ScopeGuard {
 public:
  ScopeGuard(Evaluator& evaluator, ScopePtr scope)
      : evaluator_(evaluator), outer_(std::move(evaluator.scope_)) {
    evaluator_.scope_ = std::move(scope);
  }
  ~ScopeGuard() {
    ScopePtr inner = std::exchange(evaluator_.scope_, std::move(outer_));
    if (inner == nullptr || inner == evaluator_.scope_ || inner.use_count() == 1) return;
    evaluator_.runtime_.Work(64);
    evaluator_.kept_scopes_.push_back(std::move(inner));
  }
  ScopeGuard(const ScopeGuard&) = delete;
  ScopeGuard& operator=(const ScopeGuard&) = delete;

 private:
  Evaluator& evaluator_;
  ScopePtr outer_;
};

// Sends output to `text` while it lives.
class CaptureGuard {
 public:
  CaptureGuard(Evaluator& evaluator, std::string& text)
      : evaluator_(evaluator), outer_(evaluator.out_), held_(evaluator.out_->size()) {
    evaluator_.captured_bytes_ += static_cast<int64_t>(held_);
    evaluator_.out_ = &text;
  }
  ~CaptureGuard() {
    evaluator_.captured_bytes_ -= static_cast<int64_t>(held_);
    evaluator_.out_ = outer_;
  }
  CaptureGuard(const CaptureGuard&) = delete;
  CaptureGuard& operator=(const CaptureGuard&) = delete;

 private:
  Evaluator& evaluator_;
  std::string* outer_;
  size_t held_;
};

Evaluator::Evaluator(const Program& program, Runtime& runtime, Values variables)
    : program_(program), runtime_(runtime), variables_(std::move(variables)) {
  for (size_t id = 0; id < variables_.size(); ++id) {
    if (variables_[id].is_missing() && program_.names[id] == "self") {
      variables_[id] = runtime_.Adopt(std::make_shared<SelfObject>(*this));
    }
  }
}

Evaluator::~Evaluator() {
  for (const ScopePtr& scope : kept_scopes_) scope->variables.clear();
}

Status Evaluator::Run() {
  TN_RETURN_IF_ERROR(ExecBody(program_.body).status());
  return runtime_.ok() ? Status() : runtime_.failure();
}

ScopePtr Evaluator::MakeScope(ScopePtr enclosing) {
  constexpr int64_t kScopeBytes = 256;
  auto scope = std::make_shared<Scope>(std::move(enclosing));
  scope->charge.Begin(runtime_.live_bytes(), kScopeBytes);
  return scope;
}

// --- output

Status Evaluator::CheckOutput() {
  const int64_t total = captured_bytes_ + static_cast<int64_t>(out_->size());
  if (total <= runtime_.limits().max_output_bytes) return {};
  return Refused(fmt::format("the output takes more than {} bytes (limit max_output_bytes)",
                             runtime_.limits().max_output_bytes));
}

Status Evaluator::Emit(std::string_view text) {
  runtime_.Work(1 + static_cast<int64_t>(text.size() / 64));
  out_->append(text);
  return CheckOutput();
}

Status Evaluator::EmitValue(const Value& value) {
  if (value.is_text() && (!runtime_.autoescape || value.is_markup())) return Emit(value.text());
  std::string text;
  TN_RETURN_IF_ERROR(runtime_.autoescape ? AppendEscapedValue(runtime_, value, text)
                                         : AppendStr(runtime_, value, text));
  return Emit(text);
}

Value Evaluator::TextOf(std::string text) {
  return runtime_.String(std::move(text), runtime_.autoescape);
}

Result<Evaluator::Flow> Evaluator::Capture(const Body& body, ScopePtr scope, std::string& text) {
  const ScopeGuard in_scope(*this, std::move(scope));
  const CaptureGuard capturing(*this, text);
  return ExecBody(body);
}

int64_t Evaluator::CountOutput() {
  counted_points_ +=
      static_cast<int64_t>(CountCodePoints(std::string_view(output_).substr(counted_bytes_)));
  counted_bytes_ = output_.size();
  return counted_points_;
}

// --- variables

Value Evaluator::Lookup(int id) const {
  for (const Scope* scope = scope_.get(); scope != nullptr; scope = scope->parent.get()) {
    for (const auto& [variable, value] : scope->variables) {
      if (variable == id) return value;
    }
  }
  return variables_[static_cast<size_t>(id)];
}

void Evaluator::Store(int id, Value value) {
  if (scope_ == nullptr) {
    variables_[static_cast<size_t>(id)] = std::move(value);
    return;
  }
  for (auto& [variable, old] : scope_->variables) {
    if (variable != id) continue;
    old = std::move(value);
    return;
  }
  scope_->variables.emplace_back(id, std::move(value));
}

Status Evaluator::CheckAttributeTargets(const Target& target) {
  for (const Target& part : target.parts) TN_RETURN_IF_ERROR(CheckAttributeTargets(part));
  if (target.kind != Target::Kind::kAttribute) return {};
  const Value object = Lookup(target.id);
  if (object.is_object() && dynamic_cast<NamespaceObject*>(object.object().get()) != nullptr) {
    return {};
  }
  return Refused(fmt::format("cannot assign to an attribute of '{}': only a namespace() allows it",
                             program_.names[static_cast<size_t>(target.id)]));
}

Status Evaluator::Assign(const Target& target, const Value& value) {
  if (target.kind == Target::Kind::kName) {
    Store(target.id, value);
    return {};
  }
  if (target.kind == Target::Kind::kAttribute) {
    const Value object = Lookup(target.id);
    auto* space =
        object.is_object() ? dynamic_cast<NamespaceObject*>(object.object().get()) : nullptr;
    if (space == nullptr) return CheckAttributeTargets(target);
    return space->Set(runtime_, target.attribute.text(), value);
  }
  if (!Cursor::CanIterate(value)) {
    return Refused(
        fmt::format("cannot unpack '{}' into {} names", value.TypeName(), target.parts.size()));
  }
  TN_ASSIGN_OR_RETURN(const Values items, ToItems(runtime_, value));
  if (items.size() != target.parts.size()) {
    return Refused(
        fmt::format("cannot unpack {} values into {} names", items.size(), target.parts.size()));
  }
  for (size_t i = 0; i < items.size(); ++i) TN_RETURN_IF_ERROR(Assign(target.parts[i], items[i]));
  return {};
}

// --- statements

Result<Evaluator::Flow> Evaluator::ExecBody(const Body& body) {
  const Nesting nesting(runtime_);
  if (nesting.too_deep()) return nesting.Error();
  for (const StmtPtr& statement : body) {
    Result<Flow> flow = runtime_.Work(1) ? Exec(*statement) : Result<Flow>(runtime_.failure());
    if (!flow.ok() && error_line_ == 0) error_line_ = statement->line;
    if (!flow.ok() || *flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

Result<Evaluator::Flow> Evaluator::Exec(const Stmt& statement) {
  Status status;
  switch (statement.kind) {
    case StmtKind::kText:
      status = Emit(static_cast<const TextStmt&>(statement).text);
      break;
    case StmtKind::kPrint:
      status = ExecPrint(static_cast<const PrintStmt&>(statement));
      break;
    case StmtKind::kSet:
      status = ExecSet(static_cast<const SetStmt&>(statement));
      break;
    case StmtKind::kMacro:
      status = ExecMacro(static_cast<const MacroStmt&>(statement));
      break;
    case StmtKind::kCallBlock:
      status = ExecCallBlock(static_cast<const CallBlockStmt&>(statement));
      break;
    case StmtKind::kBlock:
      status = ExecBlock(static_cast<const BlockStmt&>(statement));
      break;
    case StmtKind::kGeneration:
      status = ExecGeneration(static_cast<const GenerationStmt&>(statement));
      break;
    case StmtKind::kLoad:
      status = Refused(fmt::format("{} cannot be used: a chat template stands alone",
                                   static_cast<const LoadStmt&>(statement).tag));
      break;
    case StmtKind::kFor:
      return ExecFor(static_cast<const ForStmt&>(statement));
    case StmtKind::kIf:
      return ExecIf(static_cast<const IfStmt&>(statement));
    case StmtKind::kSetBlock:
      return ExecSetBlock(static_cast<const SetBlockStmt&>(statement));
    case StmtKind::kFilterBlock:
      return ExecFilterBlock(static_cast<const FilterBlockStmt&>(statement));
    case StmtKind::kWith:
      return ExecWith(static_cast<const WithStmt&>(statement));
    case StmtKind::kAutoescape:
      return ExecAutoescape(static_cast<const AutoescapeStmt&>(statement));
    case StmtKind::kBreak:
      return Flow::kBreak;
    case StmtKind::kContinue:
      return Flow::kContinue;
  }
  if (!status.ok()) return status;
  return Flow::kNormal;
}

Status Evaluator::ExecPrint(const PrintStmt& print) {
  for (const ExprPtr& expr : print.values) {
    TN_ASSIGN_OR_RETURN(const Value value, Eval(*expr));
    TN_RETURN_IF_ERROR(EmitValue(value));
  }
  return {};
}

Status Evaluator::ExecSet(const SetStmt& set) {
  TN_RETURN_IF_ERROR(CheckAttributeTargets(set.target));
  TN_ASSIGN_OR_RETURN(const Value value, Eval(*set.value));
  return Assign(set.target, value);
}

Result<Evaluator::Flow> Evaluator::ExecSetBlock(const SetBlockStmt& set) {
  std::string text;
  TN_ASSIGN_OR_RETURN(const Flow flow, Capture(set.body, MakeScope(scope_), text));
  if (flow != Flow::kNormal) return flow;
  Value value = TextOf(std::move(text));
  if (set.filter != nullptr) {
    const Value outer_text = std::exchange(block_text_, value);
    Result<Value> filtered = Eval(*set.filter);
    block_text_ = outer_text;
    if (!filtered.ok()) return filtered.status();
    value = *std::move(filtered);
    if (runtime_.autoescape && value.is_text()) value = TextOf(std::string(value.text()));
  }
  TN_RETURN_IF_ERROR(Assign(set.target, value));
  return Flow::kNormal;
}

Result<Evaluator::Flow> Evaluator::ExecFilterBlock(const FilterBlockStmt& block) {
  std::string text;
  TN_ASSIGN_OR_RETURN(const Flow flow, Capture(block.body, MakeScope(scope_), text));
  if (flow != Flow::kNormal) return flow;
  const Value outer_text = std::exchange(block_text_, TextOf(std::move(text)));
  Result<Value> filtered = Eval(*block.filter);
  block_text_ = outer_text;
  if (!filtered.ok()) return filtered.status();
  TN_RETURN_IF_ERROR(EmitValue(*filtered));
  return Flow::kNormal;
}

Result<Evaluator::Flow> Evaluator::ExecIf(const IfStmt& branch) {
  for (const auto& [condition, body] : branch.branches) {
    TN_ASSIGN_OR_RETURN(const Value value, Eval(*condition));
    if (Truth(value)) return ExecBody(body);
  }
  return ExecBody(branch.otherwise);
}

Result<Evaluator::Flow> Evaluator::ExecWith(const WithStmt& with) {
  // The values are computed outside the new scope: they do not see each other.
  Values values;
  for (const auto& [target, expr] : with.assignments) {
    TN_ASSIGN_OR_RETURN(Value value, Eval(*expr));
    values.push_back(std::move(value));
  }
  const ScopeGuard in_scope(*this, MakeScope(scope_));
  for (size_t i = 0; i < values.size(); ++i) {
    TN_RETURN_IF_ERROR(Assign(with.assignments[i].first, values[i]));
  }
  return ExecBody(with.body);
}

Result<Evaluator::Flow> Evaluator::ExecAutoescape(const AutoescapeStmt& block) {
  TN_ASSIGN_OR_RETURN(const Value enabled, Eval(*block.enabled));
  const ScopeGuard in_scope(*this, MakeScope(scope_));
  const bool outer = std::exchange(runtime_.autoescape, Truth(enabled));
  Result<Flow> flow = ExecBody(block.body);
  runtime_.autoescape = outer;
  return flow;
}

Status Evaluator::ExecMacro(const MacroStmt& macro) {
  runtime_.Work(2);
  Store(macro.id, runtime_.Adopt(std::make_shared<MacroObject>(*this, macro.code, scope_)));
  return {};
}

Status Evaluator::ExecCallBlock(const CallBlockStmt& block) {
  const Value caller = runtime_.Adopt(std::make_shared<MacroObject>(*this, block.code, scope_));
  TN_ASSIGN_OR_RETURN(const Value value, EvalCall(*block.call, &caller));
  return EmitValue(value);
}

Status Evaluator::ExecBlock(const BlockStmt& block) {
  if (block.required) {
    return Refused(fmt::format("block '{}' is required, and nothing defines it", block.name));
  }
  const ScopeGuard in_scope(*this, MakeScope(block.scoped ? scope_ : nullptr));
  return ExecBody(block.body).status();
}

Status Evaluator::ExecGeneration(const GenerationStmt& block) {
  std::string text;
  TN_RETURN_IF_ERROR(Capture(block.body, MakeScope(scope_), text).status());
  // As the reference does, the place counts only what has left for the template's own output.
  const int64_t begin = CountOutput();
  spans_.emplace_back(begin, begin + static_cast<int64_t>(CountCodePoints(text)));
  return Emit(text);
}

Result<Value> Evaluator::RenderBlock(const BlockStmt& block) {
  std::string text;
  TN_RETURN_IF_ERROR(Capture(block.body, MakeScope(nullptr), text).status());
  return TextOf(std::move(text));
}

// --- loops

Result<Evaluator::Flow> Evaluator::ExecFor(const ForStmt& loop) {
  TN_ASSIGN_OR_RETURN(const Value iterable, Eval(*loop.iterable));
  if (!loop.recursive) return RunLoop(loop, scope_, iterable, 0);
  TN_ASSIGN_OR_RETURN(const Value text, RenderLoop(loop, scope_, iterable, 0));
  TN_RETURN_IF_ERROR(EmitValue(text));
  return Flow::kNormal;
}

Result<Value> Evaluator::RenderLoop(const ForStmt& loop, const ScopePtr& scope,
                                    const Value& iterable, int depth0) {
  const Nesting nesting(runtime_);
  if (nesting.too_deep()) return nesting.Error();
  std::string text;
  const CaptureGuard capturing(*this, text);
  TN_RETURN_IF_ERROR(RunLoop(loop, scope, iterable, depth0).status());
  return TextOf(std::move(text));
}

Result<Evaluator::Flow> Evaluator::RunLoop(const ForStmt& loop, const ScopePtr& scope,
                                           const Value& iterable, int depth0) {
  TN_ASSIGN_OR_RETURN(Cursor cursor, Cursor::Over(iterable));
  const auto state = std::make_shared<LoopObject>(*this, loop, scope, std::move(cursor), depth0);
  bool completed = false;
  Result<Flow> flow = Flow::kNormal;
  {
    const ScopeGuard in_scope(*this, MakeScope(scope));
    flow = RunIterations(loop, *state, runtime_.Adopt(state), completed);
  }
  if (state.use_count() > 1) state->Finish();
  // Jinja's `else` runs when no iteration got to its end, also after continue and break.
  if (!flow.ok() || completed || loop.otherwise.empty()) return flow;
  const ScopeGuard in_scope(*this, MakeScope(scope));
  return ExecBody(loop.otherwise);
}

Result<Evaluator::Flow> Evaluator::RunIterations(const ForStmt& loop, LoopObject& state,
                                                 const Value& loop_value, bool& completed) {
  Value item;
  for (;;) {
    TN_ASSIGN_OR_RETURN(const bool more, state.Next(runtime_, item));
    if (!more) return Flow::kNormal;
    scope_->variables.clear();
    scope_->variables.emplace_back(program_.loop_id, loop_value);
    TN_RETURN_IF_ERROR(Assign(loop.target, item));
    TN_ASSIGN_OR_RETURN(const Flow flow, ExecBody(loop.body));
    if (flow == Flow::kBreak) return Flow::kNormal;
    completed = completed || flow == Flow::kNormal;
  }
}

Result<bool> Evaluator::TakesItem(const ForStmt& loop, const ScopePtr& scope, const Value& item) {
  const ScopeGuard in_scope(*this, MakeScope(scope));
  TN_RETURN_IF_ERROR(Assign(loop.target, item));
  TN_ASSIGN_OR_RETURN(const Value value, Eval(*loop.condition));
  return Truth(value);
}

}  // namespace tenon::jinja
