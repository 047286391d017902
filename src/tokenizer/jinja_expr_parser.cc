#include "tenon/tokenizer/jinja_expr_parser.h"

#include <fmt/format.h>

#include <algorithm>

#include "tenon/tokenizer/jinja_filters.h"
#include "tenon/tokenizer/jinja_parser.h"
#include "tenon/tokenizer/jinja_tests.h"

namespace tenon::jinja {
namespace {

constexpr std::string_view kSpecialNames[] = {"caller", "kwargs", "varargs"};

int DeepestOf(const ArgumentList& arguments) {
  int depth = 0;
  for (const ExprPtr& argument : arguments.positional) depth = std::max(depth, argument->depth);
  for (const auto& [name, argument] : arguments.named) depth = std::max(depth, argument->depth);
  for (const ExprPtr* argument : {&arguments.star, &arguments.double_star}) {
    if (*argument != nullptr) depth = std::max(depth, (*argument)->depth);
  }
  return depth;
}

}  // namespace

bool ExprParser::TakeOperator(std::string_view op) {
  if (!current().IsOperator(op)) return false;
  Take();
  return true;
}

bool ExprParser::TakeName(std::string_view name) {
  if (!current().IsName(name)) return false;
  Take();
  return true;
}

Status ExprParser::ErrorAt(int line, std::string_view what) const {
  return Refused(fmt::format("line {}: {}", line, what));
}

Status ExprParser::Unexpected(std::string_view wanted) const {
  return ErrorAt(current().line,
                 fmt::format("expected {}, got {}", wanted, DescribeToken(current())));
}

Status ExprParser::ExpectOperator(std::string_view op) {
  return TakeOperator(op) ? Status() : Unexpected(fmt::format("'{}'", op));
}

Status ExprParser::ExpectName(std::string_view name) {
  return TakeName(name) ? Status() : Unexpected(fmt::format("'{}'", name));
}

Status ExprParser::Expect(TokenType type, std::string_view description) {
  if (current().type != type) return Unexpected(description);
  Take();
  return {};
}

Result<std::string> ExprParser::TakeAnyName() {
  if (current().type != TokenType::kName) return Unexpected("a name");
  return Take().text;
}

int ExprParser::IdOf(std::string_view name) {
  const auto found = ids_.find(name);
  if (found != ids_.end()) return found->second;
  const auto id = static_cast<int>(names_.size());
  names_.emplace_back(name);
  ids_.emplace(name, id);
  return id;
}

void ExprParser::NoteLoad(std::string_view name) {
  for (size_t i = 0; i < std::size(kSpecialNames); ++i) {
    if (name != kSpecialNames[i]) continue;
    for (MacroNotes& notes : macros_) notes.reads[i] = notes.reads[i] || !notes.stored[i];
  }
}

Status ExprParser::NoteStore(std::string_view name, int line) {
  if (name == "loop" && for_depth_ > 0) {
    return ErrorAt(line, "'loop' is the loop's own variable and cannot be assigned in it");
  }
  for (size_t i = 0; i < std::size(kSpecialNames); ++i) {
    if (name != kSpecialNames[i]) continue;
    for (MacroNotes& notes : macros_) notes.stored[i] = true;
  }
  return {};
}

Status ExprParser::Level::Check() const {
  if (parser_.level_ <= kMaxParseNesting) return {};
  return parser_.ErrorAt(parser_.current().line,
                         fmt::format("nested deeper than {} levels", kMaxParseNesting));
}

Result<ExprPtr> ExprParser::Finish(ExprPtr node,
                                   std::initializer_list<const Expr*> children) const {
  for (const Expr* child : children) {
    if (child != nullptr) node->depth = std::max(node->depth, child->depth + 1);
  }
  if (node->depth > kMaxExprDepth) {
    return ErrorAt(node->line,
                   fmt::format("an expression is deeper than {} operations", kMaxExprDepth));
  }
  return node;
}

Result<ExprPtr> ExprParser::FinishParts(std::unique_ptr<PartsExpr> node) const {
  for (const ExprPtr& part : node->parts) node->depth = std::max(node->depth, part->depth + 1);
  return Finish(std::move(node), {});
}

Result<ExprPtr> ExprParser::MakeBinary(int line, BinaryOperator op, ExprPtr left,
                                       ExprPtr right) const {
  auto node = std::make_unique<BinaryExpr>(line, op);
  node->left = std::move(left);
  node->right = std::move(right);
  const Expr* children[] = {node->left.get(), node->right.get()};
  return Finish(std::move(node), {children[0], children[1]});
}

Result<ExprPtr> ExprParser::ParseExpression(bool with_conditional) {
  const Level level(*this);
  TN_RETURN_IF_ERROR(level.Check());
  return with_conditional ? ParseConditional() : ParseOr();
}

Result<ExprPtr> ExprParser::ParseConditional() {
  const Level level(*this);
  TN_RETURN_IF_ERROR(level.Check());
  const size_t num_unknown = unknown_.size();
  const int line = current().line;
  TN_ASSIGN_OR_RETURN(ExprPtr value, ParseOr());
  while (TakeName("if")) {
    auto node = std::make_unique<ConditionalExpr>(line);
    node->then = std::move(value);
    TN_ASSIGN_OR_RETURN(node->condition, ParseOr());
    if (TakeName("else")) {
      TN_ASSIGN_OR_RETURN(node->otherwise, ParseConditional());
    }
    unknown_.resize(num_unknown);
    const Expr* children[] = {node->then.get(), node->condition.get(), node->otherwise.get()};
    TN_ASSIGN_OR_RETURN(value, Finish(std::move(node), {children[0], children[1], children[2]}));
  }
  return value;
}

Result<ExprPtr> ExprParser::ParseOr() {
  const int line = current().line;
  TN_ASSIGN_OR_RETURN(ExprPtr left, ParseAnd());
  if (!current().IsName("or")) return left;
  auto node = std::make_unique<PartsExpr>(ExprKind::kOr, line);
  node->parts.push_back(std::move(left));
  while (TakeName("or")) {
    TN_ASSIGN_OR_RETURN(ExprPtr part, ParseAnd());
    node->parts.push_back(std::move(part));
  }
  return FinishParts(std::move(node));
}

Result<ExprPtr> ExprParser::ParseAnd() {
  const int line = current().line;
  TN_ASSIGN_OR_RETURN(ExprPtr left, ParseNot());
  if (!current().IsName("and")) return left;
  auto node = std::make_unique<PartsExpr>(ExprKind::kAnd, line);
  node->parts.push_back(std::move(left));
  while (TakeName("and")) {
    TN_ASSIGN_OR_RETURN(ExprPtr part, ParseNot());
    node->parts.push_back(std::move(part));
  }
  return FinishParts(std::move(node));
}

Result<ExprPtr> ExprParser::ParseNot() {
  if (!current().IsName("not")) return ParseCompare();
  const Level level(*this);
  TN_RETURN_IF_ERROR(level.Check());
  const int line = Take().line;
  auto node = std::make_unique<PartsExpr>(ExprKind::kNot, line);
  TN_ASSIGN_OR_RETURN(ExprPtr part, ParseNot());
  node->parts.push_back(std::move(part));
  return FinishParts(std::move(node));
}

std::optional<CompareOperator> ExprParser::TakeCompareOperator() {
  constexpr std::pair<std::string_view, CompareOperator> kOperators[] = {
      {"==", CompareOperator::kEqual},  {"!=", CompareOperator::kNotEqual},
      {"<", CompareOperator::kLess},    {"<=", CompareOperator::kLessEqual},
      {">", CompareOperator::kGreater}, {">=", CompareOperator::kGreaterEqual}};
  for (const auto& [symbol, op] : kOperators) {
    if (TakeOperator(symbol)) return op;
  }
  if (TakeName("in")) return CompareOperator::kIn;
  if (current().IsName("not") && next().IsName("in")) {
    Take();
    Take();
    return CompareOperator::kNotIn;
  }
  return std::nullopt;
}

Result<ExprPtr> ExprParser::ParseCompare() {
  const int line = current().line;
  TN_ASSIGN_OR_RETURN(ExprPtr first, ParseSum());
  std::optional<CompareOperator> op = TakeCompareOperator();
  if (!op) return first;
  auto node = std::make_unique<CompareExpr>(line);
  node->depth = first->depth + 1;
  node->first = std::move(first);
  for (; op; op = TakeCompareOperator()) {
    TN_ASSIGN_OR_RETURN(ExprPtr operand, ParseSum());
    node->depth = std::max(node->depth, operand->depth + 1);
    node->rest.emplace_back(*op, std::move(operand));
  }
  return Finish(std::move(node), {});
}

Result<ExprPtr> ExprParser::ParseSum() {
  const int line = current().line;
  TN_ASSIGN_OR_RETURN(ExprPtr left, ParseConcat());
  while (current().IsOperator("+") || current().IsOperator("-")) {
    const BinaryOperator op = Take().text == "+" ? BinaryOperator::kAdd : BinaryOperator::kSubtract;
    TN_ASSIGN_OR_RETURN(ExprPtr right, ParseConcat());
    TN_ASSIGN_OR_RETURN(left, MakeBinary(line, op, std::move(left), std::move(right)));
  }
  return left;
}

Result<ExprPtr> ExprParser::ParseConcat() {
  const int line = current().line;
  TN_ASSIGN_OR_RETURN(ExprPtr first, ParseProduct());
  if (!current().IsOperator("~")) return first;
  auto node = std::make_unique<PartsExpr>(ExprKind::kConcat, line);
  node->parts.push_back(std::move(first));
  while (TakeOperator("~")) {
    TN_ASSIGN_OR_RETURN(ExprPtr part, ParseProduct());
    node->parts.push_back(std::move(part));
  }
  return FinishParts(std::move(node));
}

Result<ExprPtr> ExprParser::ParseProduct() {
  constexpr std::pair<std::string_view, BinaryOperator> kOperators[] = {
      {"*", BinaryOperator::kMultiply},
      {"/", BinaryOperator::kDivide},
      {"//", BinaryOperator::kFloorDivide},
      {"%", BinaryOperator::kModulo}};
  const int line = current().line;
  TN_ASSIGN_OR_RETURN(ExprPtr left, ParsePower());
  for (;;) {
    const auto* op = std::find_if(std::begin(kOperators), std::end(kOperators),
                                  [&](const auto& row) { return current().IsOperator(row.first); });
    if (op == std::end(kOperators)) return left;
    Take();
    TN_ASSIGN_OR_RETURN(ExprPtr right, ParsePower());
    TN_ASSIGN_OR_RETURN(left, MakeBinary(line, op->second, std::move(left), std::move(right)));
  }
}

// Unlike Python, Jinja groups ** to the left and binds a sign more tightly.
Result<ExprPtr> ExprParser::ParsePower() {
  const int line = current().line;
  TN_ASSIGN_OR_RETURN(ExprPtr left, ParseUnary(true));
  while (TakeOperator("**")) {
    TN_ASSIGN_OR_RETURN(ExprPtr right, ParseUnary(true));
    TN_ASSIGN_OR_RETURN(
        left, MakeBinary(line, BinaryOperator::kPower, std::move(left), std::move(right)));
  }
  return left;
}

Result<ExprPtr> ExprParser::ParseUnary(bool with_filter) {
  const Level level(*this);
  TN_RETURN_IF_ERROR(level.Check());
  ExprPtr node;
  if (current().IsOperator("-") || current().IsOperator("+")) {
    const Token& sign = Take();
    auto unary = std::make_unique<PartsExpr>(sign.text == "-" ? ExprKind::kNegate : ExprKind::kPlus,
                                             sign.line);
    TN_ASSIGN_OR_RETURN(ExprPtr part, ParseUnary(false));
    unary->parts.push_back(std::move(part));
    TN_ASSIGN_OR_RETURN(node, FinishParts(std::move(unary)));
  } else {
    TN_ASSIGN_OR_RETURN(node, ParsePrimary());
  }
  TN_ASSIGN_OR_RETURN(node, ParsePostfix(std::move(node)));
  return with_filter ? ParseFilterChain(std::move(node)) : Result<ExprPtr>(std::move(node));
}

Result<ExprPtr> ExprParser::ParsePrimary() {
  const Token& token = current();
  const auto constant = [&](Value value) -> Result<ExprPtr> {
    Take();
    return ExprPtr(std::make_unique<ConstExpr>(token.line, std::move(value)));
  };
  if (token.type == TokenType::kName) {
    if (token.text == "true" || token.text == "True") return constant(Value(true));
    if (token.text == "false" || token.text == "False") return constant(Value(false));
    if (token.text == "none" || token.text == "None") return constant(Value());
    Take();
    NoteLoad(token.text);
    return ExprPtr(std::make_unique<NameExpr>(token.line, IdOf(token.text)));
  }
  if (token.type == TokenType::kString) {
    std::string text;
    while (current().type == TokenType::kString) text += Take().text;
    return ExprPtr(std::make_unique<ConstExpr>(token.line, Value::ConstantText(std::move(text))));
  }
  if (token.type == TokenType::kInteger || token.type == TokenType::kFloat) {
    return constant(token.number);
  }
  if (token.IsOperator("[")) return ParseList();
  if (token.IsOperator("{")) return ParseDict();
  if (!TakeOperator("(")) return Unexpected("an expression");
  TN_ASSIGN_OR_RETURN(ExprPtr node, ParseTuple({true, true, {}}));
  TN_RETURN_IF_ERROR(ExpectOperator(")"));
  return node;
}

bool ExprParser::AtTupleEnd(std::string_view end_name) const {
  return current().type == TokenType::kVariableEnd || current().type == TokenType::kBlockEnd ||
         current().IsOperator(")") || (!end_name.empty() && current().IsName(end_name));
}

Result<ExprPtr> ExprParser::ParseTuple(const TupleOptions& options) {
  auto node = std::make_unique<PartsExpr>(ExprKind::kTuple, current().line);
  bool is_tuple = false;
  while (!AtTupleEnd(options.end_name)) {
    TN_ASSIGN_OR_RETURN(ExprPtr part, ParseExpression(options.with_conditional));
    node->parts.push_back(std::move(part));
    if (!TakeOperator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !node->parts.empty()) return std::move(node->parts[0]);
  if (!is_tuple && !options.in_parentheses) return Unexpected("an expression");
  return FinishParts(std::move(node));
}

Result<ExprPtr> ExprParser::ParseList() {
  auto node = std::make_unique<PartsExpr>(ExprKind::kList, Take().line);
  while (!current().IsOperator("]")) {
    if (!node->parts.empty()) {
      TN_RETURN_IF_ERROR(ExpectOperator(","));
      if (current().IsOperator("]")) break;
    }
    TN_ASSIGN_OR_RETURN(ExprPtr part, ParseExpression());
    node->parts.push_back(std::move(part));
  }
  Take();
  return FinishParts(std::move(node));
}

Result<ExprPtr> ExprParser::ParseDict() {
  auto node = std::make_unique<DictExpr>(Take().line);
  while (!current().IsOperator("}")) {
    if (!node->entries.empty()) {
      TN_RETURN_IF_ERROR(ExpectOperator(","));
      if (current().IsOperator("}")) break;
    }
    TN_ASSIGN_OR_RETURN(ExprPtr key, ParseExpression());
    TN_RETURN_IF_ERROR(ExpectOperator(":"));
    TN_ASSIGN_OR_RETURN(ExprPtr value, ParseExpression());
    node->depth = std::max({node->depth, key->depth + 1, value->depth + 1});
    node->entries.emplace_back(std::move(key), std::move(value));
  }
  Take();
  return Finish(std::move(node), {});
}

Result<ExprPtr> ExprParser::ParsePostfix(ExprPtr node) {
  for (;;) {
    if (current().IsOperator(".") || current().IsOperator("[")) {
      TN_ASSIGN_OR_RETURN(node, ParseSubscript(std::move(node)));
    } else if (current().IsOperator("(")) {
      TN_ASSIGN_OR_RETURN(node, ParseCall(std::move(node)));
    } else {
      return node;
    }
  }
}

Result<ExprPtr> ExprParser::ParseFilterChain(ExprPtr node) {
  for (;;) {
    if (current().IsOperator("|")) {
      TN_ASSIGN_OR_RETURN(node, ParseFilters(std::move(node), false));
    } else if (current().IsName("is")) {
      TN_ASSIGN_OR_RETURN(node, ParseTest(std::move(node)));
    } else if (current().IsOperator("(")) {
      TN_ASSIGN_OR_RETURN(node, ParseCall(std::move(node)));
    } else {
      return node;
    }
  }
}

Result<ExprPtr> ExprParser::ParseSubscript(ExprPtr node) {
  const int line = current().line;
  if (TakeOperator("[")) return ParseBracket(std::move(node), line);
  Take();
  if (current().type == TokenType::kName) {
    auto attribute = std::make_unique<AttributeExpr>(line);
    attribute->name = Take().text;
    attribute->object = std::move(node);
    const Expr* child = attribute->object.get();
    return Finish(std::move(attribute), {child});
  }
  if (current().type != TokenType::kInteger) return Unexpected("a name or a number");
  auto item = std::make_unique<ItemExpr>(line);
  item->object = std::move(node);
  item->key = std::make_unique<ConstExpr>(line, Take().number);
  const Expr* child = item->object.get();
  return Finish(std::move(item), {child});
}

Result<ExprPtr> ExprParser::ParseBracket(ExprPtr node, int line) {
  ExprPtr parts[3];
  bool is_slice = false;
  for (size_t i = 0; i < 3; ++i) {
    if (!current().IsOperator(":") && !current().IsOperator("]")) {
      TN_ASSIGN_OR_RETURN(parts[i], ParseExpression());
    }
    if (i == 2 || !TakeOperator(":")) break;
    is_slice = true;
  }
  if (is_slice) {
    TN_RETURN_IF_ERROR(ExpectOperator("]"));
    auto slice = std::make_unique<SliceExpr>(line);
    slice->object = std::move(node);
    slice->start = std::move(parts[0]);
    slice->stop = std::move(parts[1]);
    slice->step = std::move(parts[2]);
    const Expr* children[] = {slice->object.get(), slice->start.get(), slice->stop.get(),
                              slice->step.get()};
    return Finish(std::move(slice), {children[0], children[1], children[2], children[3]});
  }
  if (parts[0] == nullptr) return Unexpected("an expression");
  auto item = std::make_unique<ItemExpr>(line);
  item->object = std::move(node);
  item->key = std::move(parts[0]);
  if (current().IsOperator(",")) {
    auto tuple = std::make_unique<PartsExpr>(ExprKind::kTuple, line);
    tuple->parts.push_back(std::move(item->key));
    while (TakeOperator(",")) {
      TN_ASSIGN_OR_RETURN(ExprPtr part, ParseExpression());
      tuple->parts.push_back(std::move(part));
    }
    TN_ASSIGN_OR_RETURN(item->key, FinishParts(std::move(tuple)));
  }
  TN_RETURN_IF_ERROR(ExpectOperator("]"));
  const Expr* children[] = {item->object.get(), item->key.get()};
  return Finish(std::move(item), {children[0], children[1]});
}

Result<ArgumentList> ExprParser::ParseArguments() {
  const int line = current().line;
  TN_RETURN_IF_ERROR(ExpectOperator("("));
  const Status order_error = ErrorAt(line, "arguments of a call are in a wrong order");
  ArgumentList list;
  for (bool first = true; !current().IsOperator(")"); first = false) {
    if (!first) {
      TN_RETURN_IF_ERROR(ExpectOperator(","));
      if (current().IsOperator(")")) break;
    }
    if (TakeOperator("*")) {
      if (list.star != nullptr || list.double_star != nullptr) return order_error;
      TN_ASSIGN_OR_RETURN(list.star, ParseExpression());
    } else if (TakeOperator("**")) {
      if (list.double_star != nullptr) return order_error;
      TN_ASSIGN_OR_RETURN(list.double_star, ParseExpression());
    } else if (current().type == TokenType::kName && next().IsOperator("=")) {
      if (list.double_star != nullptr) return order_error;
      Value name = Value::ConstantText(Take().text);
      Take();
      TN_ASSIGN_OR_RETURN(ExprPtr value, ParseExpression());
      list.named.emplace_back(std::move(name), std::move(value));
    } else {
      if (list.star != nullptr || list.double_star != nullptr || !list.named.empty()) {
        return order_error;
      }
      TN_ASSIGN_OR_RETURN(ExprPtr value, ParseExpression());
      list.positional.push_back(std::move(value));
    }
  }
  Take();
  return list;
}

Result<ExprPtr> ExprParser::ParseCall(ExprPtr node) {
  auto call = std::make_unique<CallExpr>(current().line);
  TN_ASSIGN_OR_RETURN(call->arguments, ParseArguments());
  call->callee = std::move(node);
  call->depth = std::max(call->callee->depth, DeepestOf(call->arguments)) + 1;
  return Finish(std::move(call), {});
}

Result<ExprPtr> ExprParser::ParseFilters(ExprPtr input, bool inline_start) {
  while (inline_start || current().IsOperator("|")) {
    if (!inline_start) Take();
    inline_start = false;
    auto filter = std::make_unique<FilterExpr>(current().line);
    TN_ASSIGN_OR_RETURN(filter->name, TakeAnyName());
    while (TakeOperator(".")) {
      TN_ASSIGN_OR_RETURN(const std::string more, TakeAnyName());
      filter->name += "." + more;
    }
    filter->entry = FindFilter(filter->name);
    if (filter->entry == nullptr && !lenient_) {
      unknown_.push_back({filter->line, fmt::format("no filter named '{}'", filter->name)});
    }
    if (current().IsOperator("(")) {
      TN_ASSIGN_OR_RETURN(filter->arguments, ParseArguments());
    }
    filter->depth = std::max(input == nullptr ? 0 : input->depth, DeepestOf(filter->arguments)) + 1;
    filter->input = std::move(input);
    TN_ASSIGN_OR_RETURN(input, Finish(std::move(filter), {}));
  }
  return input;
}

Result<ExprPtr> ExprParser::ParseTest(ExprPtr node) {
  auto test = std::make_unique<TestExpr>(Take().line);
  const bool negated = TakeName("not");
  TN_ASSIGN_OR_RETURN(test->name, TakeAnyName());
  while (TakeOperator(".")) {
    TN_ASSIGN_OR_RETURN(const std::string more, TakeAnyName());
    test->name += "." + more;
  }
  test->entry = FindTest(test->name);
  if (test->entry == nullptr && !lenient_) {
    unknown_.push_back({test->line, fmt::format("no test named '{}'", test->name)});
  }
  const Token& token = current();
  const bool starts_operand = token.type == TokenType::kName || token.type == TokenType::kString ||
                              token.type == TokenType::kInteger ||
                              token.type == TokenType::kFloat || token.IsOperator("[") ||
                              token.IsOperator("{");
  if (token.IsOperator("(")) {
    TN_ASSIGN_OR_RETURN(test->arguments, ParseArguments());
  } else if (starts_operand && !token.IsName("else") && !token.IsName("or") &&
             !token.IsName("and")) {
    if (token.IsName("is")) return ErrorAt(token.line, "tests with 'is' cannot be chained");
    TN_ASSIGN_OR_RETURN(ExprPtr operand, ParsePrimary());
    TN_ASSIGN_OR_RETURN(operand, ParsePostfix(std::move(operand)));
    test->arguments.positional.push_back(std::move(operand));
  }
  test->depth = std::max(node->depth, DeepestOf(test->arguments)) + 1;
  test->input = std::move(node);
  if (!negated) return Finish(std::move(test), {});
  auto negation = std::make_unique<PartsExpr>(ExprKind::kNot, test->line);
  negation->parts.push_back(std::move(test));
  return FinishParts(std::move(negation));
}

}  // namespace tenon::jinja
