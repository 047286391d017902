// Runs a parsed template: statements, expressions, scopes, macros and loops. One Evaluator per
// render, one thread; the Program is shared and never changed. Errors carry no place; error_line()
// tells where the first one happened.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tenon/tokenizer/jinja_ast.h"
#include "tenon/tokenizer/jinja_runtime.h"

namespace tenon::jinja {

class LoopObject;

// Variables of a loop body, macro call or block. Variables of the template itself are apart, by id.
struct Scope {
  explicit Scope(std::shared_ptr<Scope> enclosing) : parent(std::move(enclosing)) {}
  std::vector<std::pair<int, Value>> variables;
  std::shared_ptr<Scope> parent;  // null: the template
  Charge charge;
};
using ScopePtr = std::shared_ptr<Scope>;

class Evaluator {
 public:
  // `variables`: one value a name of the program, Missing where it is not given.
  Evaluator(const Program& program, Runtime& runtime, Values variables);
  ~Evaluator();
  Evaluator(const Evaluator&) = delete;
  Evaluator& operator=(const Evaluator&) = delete;

  // Renders the whole template; once.
  Status Run();
  std::string& output() { return output_; }
  // Code point offsets into the output, begin and end of each {% generation %}.
  const std::vector<std::pair<int64_t, int64_t>>& generation_spans() const { return spans_; }
  int error_line() const { return error_line_; }

  // For objects that run template code.
  Result<Value> InvokeMacro(const MacroCode& code, const ScopePtr& definition_scope,
                            const Args& args);
  Result<Value> RenderBlock(const BlockStmt& block);
  Result<Value> RenderLoop(const ForStmt& loop, const ScopePtr& scope, const Value& iterable,
                           int depth0);
  // Whether the loop's `if` takes the item.
  Result<bool> TakesItem(const ForStmt& loop, const ScopePtr& scope, const Value& item);
  const Program& program() const { return program_; }

 private:
  enum class Flow { kNormal, kBreak, kContinue };
  friend class ScopeGuard;
  friend class CaptureGuard;

  // --- statements (jinja_eval_stmt.cc)
  Result<Flow> ExecBody(const Body& body);
  Result<Flow> Exec(const Stmt& statement);
  Result<Flow> ExecIf(const IfStmt& branch);
  Result<Flow> ExecFor(const ForStmt& loop);
  Result<Flow> RunLoop(const ForStmt& loop, const ScopePtr& scope, const Value& iterable,
                       int depth0);
  Result<Flow> RunIterations(const ForStmt& loop, LoopObject& state, const Value& loop_value,
                             bool& completed);
  Result<Flow> ExecSetBlock(const SetBlockStmt& set);
  Result<Flow> ExecFilterBlock(const FilterBlockStmt& block);
  Result<Flow> ExecWith(const WithStmt& with);
  Result<Flow> ExecAutoescape(const AutoescapeStmt& block);
  Status ExecSet(const SetStmt& set);
  Status ExecPrint(const PrintStmt& print);
  Status ExecMacro(const MacroStmt& macro);
  Status ExecCallBlock(const CallBlockStmt& block);
  Status ExecBlock(const BlockStmt& block);
  Status ExecGeneration(const GenerationStmt& block);
  // Runs `body` in a scope of its own, its output into `text`.
  Result<Flow> Capture(const Body& body, ScopePtr scope, std::string& text);
  Status Emit(std::string_view text);
  Status EmitValue(const Value& value);
  Status CheckOutput();
  Value TextOf(std::string text);  // markup when escaping is on
  int64_t CountOutput();

  // --- variables
  ScopePtr MakeScope(ScopePtr enclosing);
  Value Lookup(int id) const;
  void Store(int id, Value value);
  Status Assign(const Target& target, const Value& value);
  Status CheckAttributeTargets(const Target& target);
  Status BindMacroArguments(const MacroCode& code, const Args& args, Scope& scope);
  Status BindSpecialArguments(const MacroCode& code, const Args& args,
                              std::vector<bool>& named_used, Scope& scope);

  // --- expressions (jinja_eval_expr.cc)
  Result<Value> Eval(const Expr& expr);
  Result<Value> EvalKind(const Expr& expr);
  // Not inlined: see EvalKind.
  [[gnu::noinline]] Result<Value> EvalName(const NameExpr& name);
  Result<Values> EvalParts(const std::vector<ExprPtr>& parts);
  [[gnu::noinline]] Result<Value> EvalItems(const PartsExpr& items);
  [[gnu::noinline]] Result<Value> EvalAttribute(const AttributeExpr& attribute);
  [[gnu::noinline]] Result<Value> EvalItem(const ItemExpr& item);
  [[gnu::noinline]] Result<Value> EvalUnary(const PartsExpr& unary);
  [[gnu::noinline]] Result<Value> EvalDict(const DictExpr& dict);
  [[gnu::noinline]] Result<Value> EvalSlice(const SliceExpr& slice);
  [[gnu::noinline]] Result<Value> EvalCall(const CallExpr& call, const Value* caller);
  [[gnu::noinline]] Result<Value> EvalFilter(const FilterExpr& filter);
  [[gnu::noinline]] Result<Value> EvalTest(const TestExpr& test);
  [[gnu::noinline]] Result<Value> EvalBinary(const BinaryExpr& binary);
  [[gnu::noinline]] Result<Value> EvalCompare(const CompareExpr& compare);
  [[gnu::noinline]] Result<Value> EvalLogic(const PartsExpr& logic);
  [[gnu::noinline]] Result<Value> EvalConcat(const PartsExpr& concat);
  [[gnu::noinline]] Result<Value> EvalConditional(const ConditionalExpr& conditional);
  Result<Args> EvalArguments(const ArgumentList& list, const Value* caller);

  const Program& program_;
  Runtime& runtime_;
  Values variables_;  // of the template, by id
  ScopePtr scope_;    // null: the template
  std::string output_;
  std::string* out_ = &output_;  // where text goes now
  int64_t captured_bytes_ = 0;   // in the buffers behind out_
  Value block_text_;             // input of a filter without one
  std::vector<std::pair<int64_t, int64_t>> spans_;
  size_t counted_bytes_ = 0;  // of output_, with so many code points:
  int64_t counted_points_ = 0;
  std::vector<ScopePtr> kept_scopes_;  // still referred to by macros
  int error_line_ = 0;
};

}  // namespace tenon::jinja
