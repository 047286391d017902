// The expression half of the template parser, and what both halves share: the token stream,
// variable ids, and the notes that statements take about names (macros, loops). Used by
// jinja_parser.cc alone.
#pragma once

#include <map>
#include <optional>

#include "tenon/tokenizer/jinja_ast.h"
#include "tenon/tokenizer/jinja_lexer.h"

namespace tenon::jinja {

class ExprParser {
 protected:
  explicit ExprParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  // --- tokens
  const Token& current() const { return tokens_[at_]; }
  const Token& next() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  const Token& Take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool TakeOperator(std::string_view op);
  bool TakeName(std::string_view name);
  Status ExpectOperator(std::string_view op);
  Status ExpectName(std::string_view name);
  Status Expect(TokenType type, std::string_view description);
  Result<std::string> TakeAnyName();
  Status ErrorAt(int line, std::string_view what) const;
  Status Unexpected(std::string_view wanted) const;

  // --- names
  int IdOf(std::string_view name);
  // Notes that a name is read (written) here; writing has rules of its own.
  void NoteLoad(std::string_view name);
  Status NoteStore(std::string_view name, int line);

  // --- expressions
  Result<ExprPtr> ParseExpression(bool with_conditional = true);
  struct TupleOptions {
    bool with_conditional = true;
    bool in_parentheses = false;
    std::string_view end_name;  // a name that ends the tuple, e.g. "recursive"
  };
  // One expression, or a tuple where commas follow.
  Result<ExprPtr> ParseTuple(const TupleOptions& options);
  // `| name(args) | ...` on `input`; an inline start has no `|` before the first name.
  Result<ExprPtr> ParseFilters(ExprPtr input, bool inline_start);
  bool AtTupleEnd(std::string_view end_name) const;

  // Unknown filters and tests are errors at once, except inside if-statements and conditional
  // expressions, where they are errors when they are reached.
  struct Unknown {
    int line;
    std::string what;
  };
  std::vector<Unknown> unknown_;
  bool lenient_ = false;

  // Which special variables the body of each macro being parsed reads.
  struct MacroNotes {
    bool reads[3] = {};  // caller, kwargs, varargs
    bool stored[3] = {};
  };
  std::vector<MacroNotes> macros_;
  int for_depth_ = 0;

  // Levels of recursion in the parser.
  class Level {
   public:
    explicit Level(ExprParser& parser) : parser_(parser) { ++parser_.level_; }
    ~Level() { --parser_.level_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;
    Status Check() const;

   private:
    ExprParser& parser_;
  };

  std::vector<std::string> names_;

 private:
  Result<ExprPtr> ParseConditional();
  Result<ExprPtr> ParseOr();
  Result<ExprPtr> ParseAnd();
  Result<ExprPtr> ParseNot();
  Result<ExprPtr> ParseCompare();
  Result<ExprPtr> ParseSum();
  Result<ExprPtr> ParseConcat();
  Result<ExprPtr> ParseProduct();
  Result<ExprPtr> ParsePower();
  Result<ExprPtr> ParseUnary(bool with_filter);
  Result<ExprPtr> ParsePrimary();
  Result<ExprPtr> ParseList();
  Result<ExprPtr> ParseDict();
  Result<ExprPtr> ParsePostfix(ExprPtr node);
  Result<ExprPtr> ParseFilterChain(ExprPtr node);
  Result<ExprPtr> ParseSubscript(ExprPtr node);
  Result<ExprPtr> ParseBracket(ExprPtr node, int line);
  Result<ExprPtr> ParseCall(ExprPtr node);
  Result<ExprPtr> ParseTest(ExprPtr node);
  Result<ArgumentList> ParseArguments();
  std::optional<CompareOperator> TakeCompareOperator();
  // Sets the node's depth from its children and refuses what is too deep.
  Result<ExprPtr> Finish(ExprPtr node, std::initializer_list<const Expr*> children) const;
  Result<ExprPtr> FinishParts(std::unique_ptr<PartsExpr> node) const;
  Result<ExprPtr> MakeBinary(int line, BinaryOperator op, ExprPtr left, ExprPtr right) const;

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int level_ = 0;
  std::map<std::string, int, std::less<>> ids_;
};

}  // namespace tenon::jinja
