// The syntax tree of a template: what the parser builds once and every render walks. Immutable
// after parsing, so that many threads may render at the same time. Data only. Depth is bounded by
// the parser, so recursion over a tree is safe.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tenon/tokenizer/jinja_operators.h"
#include "tenon/tokenizer/jinja_value.h"

namespace tenon::jinja {

struct FilterEntry;
struct TestEntry;

enum class ExprKind {
  kConst,
  kName,
  kTuple,
  kList,
  kDict,
  kAttribute,
  kItem,
  kSlice,
  kCall,
  kFilter,
  kTest,
  kNegate,
  kPlus,
  kNot,
  kBinary,
  kCompare,
  kAnd,
  kOr,
  kConcat,
  kConditional
};

struct Expr {
  Expr(ExprKind expr_kind, int at_line) : kind(expr_kind), line(at_line) {}
  virtual ~Expr() = default;
  ExprKind kind;
  int line;
  int depth = 1;  // levels of nodes below and including this one
};
using ExprPtr = std::unique_ptr<Expr>;

struct ConstExpr : Expr {
  ConstExpr(int at_line, Value constant)
      : Expr(ExprKind::kConst, at_line), value(std::move(constant)) {}
  Value value;
};
struct NameExpr : Expr {
  NameExpr(int at_line, int name_id) : Expr(ExprKind::kName, at_line), id(name_id) {}
  int id;  // index into Program::names
};
// Tuple, list, concatenation (~), and, or; negation, plus, not have one part.
struct PartsExpr : Expr {
  using Expr::Expr;
  std::vector<ExprPtr> parts;
};
struct DictExpr : Expr {
  explicit DictExpr(int at_line) : Expr(ExprKind::kDict, at_line) {}
  std::vector<std::pair<ExprPtr, ExprPtr>> entries;
};
struct AttributeExpr : Expr {
  explicit AttributeExpr(int at_line) : Expr(ExprKind::kAttribute, at_line) {}
  ExprPtr object;
  std::string name;
};
struct ItemExpr : Expr {
  explicit ItemExpr(int at_line) : Expr(ExprKind::kItem, at_line) {}
  ExprPtr object;
  ExprPtr key;
};
struct SliceExpr : Expr {
  explicit SliceExpr(int at_line) : Expr(ExprKind::kSlice, at_line) {}
  ExprPtr object;
  ExprPtr start;  // each may be null
  ExprPtr stop;
  ExprPtr step;
};
struct ArgumentList {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<Value, ExprPtr>> named;  // the name is a text constant
  ExprPtr star;                                  // *args, may be null
  ExprPtr double_star;                           // **kwargs, may be null
};
struct CallExpr : Expr {
  explicit CallExpr(int at_line) : Expr(ExprKind::kCall, at_line) {}
  ExprPtr callee;
  ArgumentList arguments;
};
struct FilterExpr : Expr {
  explicit FilterExpr(int at_line) : Expr(ExprKind::kFilter, at_line) {}
  ExprPtr input;  // null: the text of the surrounding {% filter %} or {% set %} block
  std::string name;
  const FilterEntry* entry = nullptr;  // null = unknown: an error when it is reached
  ArgumentList arguments;
};
struct TestExpr : Expr {
  explicit TestExpr(int at_line) : Expr(ExprKind::kTest, at_line) {}
  ExprPtr input;
  std::string name;
  const TestEntry* entry = nullptr;
  ArgumentList arguments;
};
struct BinaryExpr : Expr {
  BinaryExpr(int at_line, BinaryOperator binary_operator)
      : Expr(ExprKind::kBinary, at_line), op(binary_operator) {}
  BinaryOperator op;
  ExprPtr left;
  ExprPtr right;
};
// a < b <= c: each operator compares neighbours.
struct CompareExpr : Expr {
  explicit CompareExpr(int at_line) : Expr(ExprKind::kCompare, at_line) {}
  ExprPtr first;
  std::vector<std::pair<CompareOperator, ExprPtr>> rest;
};
struct ConditionalExpr : Expr {
  explicit ConditionalExpr(int at_line) : Expr(ExprKind::kConditional, at_line) {}
  ExprPtr condition;
  ExprPtr then;
  ExprPtr otherwise;  // may be null
};

// What a value is assigned to.
struct Target {
  enum class Kind { kName, kTuple, kAttribute };
  Kind kind = Kind::kName;
  int line = 0;
  int id = 0;       // of kName and of kAttribute's object
  Value attribute;  // text, of kAttribute
  std::vector<Target> parts;
};

enum class StmtKind {
  kText,
  kPrint,
  kSet,
  kSetBlock,
  kFor,
  kIf,
  kMacro,
  kCallBlock,
  kFilterBlock,
  kWith,
  kBlock,
  kAutoescape,
  kGeneration,
  kLoad,
  kBreak,
  kContinue
};

struct Stmt {
  Stmt(StmtKind stmt_kind, int at_line) : kind(stmt_kind), line(at_line) {}
  virtual ~Stmt() = default;
  StmtKind kind;
  int line;
};
using StmtPtr = std::unique_ptr<Stmt>;
using Body = std::vector<StmtPtr>;

struct TextStmt : Stmt {
  TextStmt(int at_line, std::string data) : Stmt(StmtKind::kText, at_line), text(std::move(data)) {}
  std::string text;
};
struct PrintStmt : Stmt {
  explicit PrintStmt(int at_line) : Stmt(StmtKind::kPrint, at_line) {}
  std::vector<ExprPtr> values;
};
struct SetStmt : Stmt {
  explicit SetStmt(int at_line) : Stmt(StmtKind::kSet, at_line) {}
  Target target;
  ExprPtr value;
};
struct SetBlockStmt : Stmt {
  explicit SetBlockStmt(int at_line) : Stmt(StmtKind::kSetBlock, at_line) {}
  Target target;
  ExprPtr filter;  // may be null
  Body body;
};
struct ForStmt : Stmt {
  explicit ForStmt(int at_line) : Stmt(StmtKind::kFor, at_line) {}
  Target target;
  ExprPtr iterable;
  ExprPtr condition;  // `if` of the loop, may be null
  bool recursive = false;
  Body body;
  Body otherwise;
};
struct IfStmt : Stmt {
  explicit IfStmt(int at_line) : Stmt(StmtKind::kIf, at_line) {}
  std::vector<std::pair<ExprPtr, Body>> branches;
  Body otherwise;
};
// Parameters and body of a macro or of a call block.
struct MacroCode {
  std::string name;  // empty: a call block
  int line = 0;
  std::vector<std::pair<int, Value>> parameters;  // id and name
  std::vector<ExprPtr> defaults;                  // of the last parameters
  bool uses_caller = false;
  bool uses_kwargs = false;
  bool uses_varargs = false;
  bool has_caller_parameter = false;
  Body body;
};
struct MacroStmt : Stmt {
  explicit MacroStmt(int at_line) : Stmt(StmtKind::kMacro, at_line) {}
  int id = 0;
  MacroCode code;
};
struct CallBlockStmt : Stmt {
  explicit CallBlockStmt(int at_line) : Stmt(StmtKind::kCallBlock, at_line) {}
  std::unique_ptr<CallExpr> call;
  MacroCode code;
};
struct FilterBlockStmt : Stmt {
  explicit FilterBlockStmt(int at_line) : Stmt(StmtKind::kFilterBlock, at_line) {}
  ExprPtr filter;
  Body body;
};
struct WithStmt : Stmt {
  explicit WithStmt(int at_line) : Stmt(StmtKind::kWith, at_line) {}
  std::vector<std::pair<Target, ExprPtr>> assignments;
  Body body;
};
struct BlockStmt : Stmt {
  explicit BlockStmt(int at_line) : Stmt(StmtKind::kBlock, at_line) {}
  std::string name;
  bool scoped = false;
  bool required = false;
  Body body;
};
struct AutoescapeStmt : Stmt {
  explicit AutoescapeStmt(int at_line) : Stmt(StmtKind::kAutoescape, at_line) {}
  ExprPtr enabled;
  Body body;
};
struct GenerationStmt : Stmt {
  explicit GenerationStmt(int at_line) : Stmt(StmtKind::kGeneration, at_line) {}
  Body body;
};
// include, import, from, extends: an error when reached, a chat template stands alone.
struct LoadStmt : Stmt {
  explicit LoadStmt(int at_line) : Stmt(StmtKind::kLoad, at_line) {}
  std::string tag;
};

// A parsed template.
struct Program {
  std::vector<std::string> names;  // of variables, by id
  int caller_id = 0;
  int kwargs_id = 0;
  int varargs_id = 0;
  int loop_id = 0;
  std::vector<const BlockStmt*> blocks;
  Body body;
};

}  // namespace tenon::jinja
