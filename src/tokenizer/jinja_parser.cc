#include "tenon/tokenizer/jinja_parser.h"

#include <fmt/format.h>

#include <algorithm>

#include "tenon/base/text.h"
#include "tenon/tokenizer/jinja_expr_parser.h"
#include "tenon/tokenizer/jinja_unicode.h"

namespace tenon::jinja {
namespace {

using EndTags = std::initializer_list<std::string_view>;

class StmtParser : public ExprParser {
 public:
  explicit StmtParser(std::vector<Token> tokens) : ExprParser(std::move(tokens)) {}

  Result<std::unique_ptr<const Program>> Run() {
    auto program = std::make_unique<Program>();
    program->caller_id = IdOf("caller");
    program->kwargs_id = IdOf("kwargs");
    program->varargs_id = IdOf("varargs");
    program->loop_id = IdOf("loop");
    TN_ASSIGN_OR_RETURN(program->body, ParseBody({}));
    if (!unknown_.empty()) return ErrorAt(unknown_[0].line, unknown_[0].what);
    program->names = std::move(names_);
    program->blocks = std::move(blocks_);
    return std::unique_ptr<const Program>(std::move(program));
  }

 private:
  // Statements up to one of `ends`, whose tag name is the current token afterwards.
  Result<Body> ParseBody(EndTags ends) {
    Body body;
    while (current().type != TokenType::kEnd) {
      const Token& token = Take();
      if (token.type == TokenType::kData) {
        body.push_back(std::make_unique<TextStmt>(token.line, token.text));
      } else if (token.type == TokenType::kVariableBegin) {
        auto print = std::make_unique<PrintStmt>(token.line);
        TN_ASSIGN_OR_RETURN(ExprPtr value, ParseTuple({}));
        print->values.push_back(std::move(value));
        TN_RETURN_IF_ERROR(Expect(TokenType::kVariableEnd, "end of print statement"));
        body.push_back(std::move(print));
      } else {
        if (AtOneOf(ends)) return body;
        TN_ASSIGN_OR_RETURN(StmtPtr statement, ParseStatement());
        body.push_back(std::move(statement));
        TN_RETURN_IF_ERROR(Expect(TokenType::kBlockEnd, "end of statement block"));
      }
    }
    if (ends.size() > 0) return UnknownTag("", current().line);
    return body;
  }

  bool AtOneOf(EndTags ends) const {
    return std::any_of(ends.begin(), ends.end(),
                       [&](std::string_view end) { return current().IsName(end); });
  }

  // The body of a block statement: `%} ... {% end`. Takes the end's name and returns it.
  struct Block {
    Body body;
    std::string end;
  };
  Result<Block> ParseBlock(EndTags ends) {
    TakeOperator(":");  // Python's habit is allowed
    TN_RETURN_IF_ERROR(Expect(TokenType::kBlockEnd, "end of statement block"));
    open_tags_.push_back(ends);
    Block block;
    TN_ASSIGN_OR_RETURN(block.body, ParseBody(ends));
    open_tags_.pop_back();
    block.end = Take().text;
    return block;
  }
  Result<Body> ParseBodyUntil(std::string_view end) {
    TN_ASSIGN_OR_RETURN(Block block, ParseBlock({end}));
    return std::move(block.body);
  }

  // An unknown tag, or the end of the template where `tag` is empty.
  Status UnknownTag(std::string_view tag, int line) const {
    std::string what =
        tag.empty() ? "unexpected end of template" : fmt::format("unknown tag '{}'", tag);
    if (!open_tags_.empty()) {
      std::vector<std::string> wanted;
      for (const std::string_view end : open_tags_.back())
        wanted.push_back(fmt::format("'{}'", end));
      what += fmt::format(", expected {}", Join(wanted, " or "));
    } else if (!tag.empty()) {
      const std::vector<std::string> near = NearNames(
          tag, std::vector<std::string>{"for", "if", "set", "macro", "call", "filter", "with",
                                        "block", "raw", "generation", "break", "continue",
                                        "autoescape", "print", "include", "import"});
      if (!near.empty()) what += fmt::format(", did you mean '{}'?", near[0]);
    }
    return ErrorAt(line, what);
  }

  Result<StmtPtr> ParseStatement() {
    const Level level(*this);
    TN_RETURN_IF_ERROR(level.Check());
    if (current().type != TokenType::kName) return Unexpected("a tag name");
    const Token& tag = Take();
    struct Row {
      std::string_view tag;
      Result<StmtPtr> (StmtParser::*parse)(int line);
    };
    constexpr Row kRows[] = {{"for", &StmtParser::ParseFor},
                             {"if", &StmtParser::ParseIf},
                             {"set", &StmtParser::ParseSet},
                             {"macro", &StmtParser::ParseMacro},
                             {"call", &StmtParser::ParseCallBlock},
                             {"filter", &StmtParser::ParseFilterBlock},
                             {"with", &StmtParser::ParseWith},
                             {"block", &StmtParser::ParseBlockTag},
                             {"autoescape", &StmtParser::ParseAutoescape},
                             {"generation", &StmtParser::ParseGeneration},
                             {"print", &StmtParser::ParsePrint},
                             {"break", &StmtParser::ParseBreak},
                             {"continue", &StmtParser::ParseContinue},
                             {"include", &StmtParser::ParseLoad},
                             {"extends", &StmtParser::ParseLoad},
                             {"import", &StmtParser::ParseLoad},
                             {"from", &StmtParser::ParseLoad}};
    for (const Row& row : kRows) {
      if (tag.text != row.tag) continue;
      // Inside a body of its own, an unknown filter is an error again even within an if.
      const bool lenient = lenient_;
      if (tag.text != "if" && tag.text != "set" && tag.text != "print") lenient_ = false;
      Result<StmtPtr> statement = (this->*row.parse)(tag.line);
      lenient_ = lenient;
      return statement;
    }
    return UnknownTag(tag.text, tag.line);
  }

  // --- targets
  Result<Target> ParseTarget(std::string_view end_name, bool with_attributes) {
    Target tuple;
    tuple.kind = Target::Kind::kTuple;
    tuple.line = current().line;
    bool is_tuple = false;
    while (!AtTupleEnd(end_name)) {
      TN_ASSIGN_OR_RETURN(Target part, ParseSingleTarget(with_attributes));
      tuple.parts.push_back(std::move(part));
      if (!TakeOperator(",")) break;
      is_tuple = true;
    }
    if (!is_tuple && tuple.parts.empty()) return Unexpected("a name to assign to");
    if (!is_tuple) return std::move(tuple.parts[0]);
    return tuple;
  }

  Result<Target> ParseSingleTarget(bool with_attributes) {
    const Level level(*this);
    TN_RETURN_IF_ERROR(level.Check());
    if (TakeOperator("(")) {
      TN_ASSIGN_OR_RETURN(Target target, ParseTarget({}, false));
      TN_RETURN_IF_ERROR(ExpectOperator(")"));
      return target;
    }
    const Token& token = current();
    constexpr std::string_view kConstants[] = {"true", "false", "none", "True", "False", "None"};
    const bool is_constant =
        std::find(std::begin(kConstants), std::end(kConstants), token.text) != std::end(kConstants);
    if (token.type != TokenType::kName || is_constant) {
      return ErrorAt(token.line, fmt::format("cannot assign to {}", DescribeToken(token)));
    }
    Take();
    Target target;
    target.line = token.line;
    target.id = IdOf(token.text);
    if (with_attributes && TakeOperator(".")) {
      target.kind = Target::Kind::kAttribute;
      TN_ASSIGN_OR_RETURN(std::string attribute, TakeAnyName());
      target.attribute = Value::ConstantText(std::move(attribute));
      NoteLoad(token.text);
      return target;
    }
    TN_RETURN_IF_ERROR(NoteStore(token.text, token.line));
    return target;
  }

  // --- statements; each is called after its tag name was taken
  Result<StmtPtr> ParseSet(int line) {
    TN_ASSIGN_OR_RETURN(Target target, ParseTarget({}, true));
    if (TakeOperator("=")) {
      auto set = std::make_unique<SetStmt>(line);
      set->target = std::move(target);
      TN_ASSIGN_OR_RETURN(set->value, ParseTuple({}));
      return StmtPtr(std::move(set));
    }
    auto set = std::make_unique<SetBlockStmt>(line);
    set->target = std::move(target);
    lenient_ = false;
    TN_ASSIGN_OR_RETURN(set->filter, ParseFilters(nullptr, false));
    TN_ASSIGN_OR_RETURN(set->body, ParseBodyUntil("endset"));
    return StmtPtr(std::move(set));
  }

  Result<StmtPtr> ParseFor(int line) {
    auto loop = std::make_unique<ForStmt>(line);
    ++for_depth_;
    TN_ASSIGN_OR_RETURN(loop->target, ParseTarget("in", false));
    TN_RETURN_IF_ERROR(ExpectName("in"));
    TN_ASSIGN_OR_RETURN(loop->iterable, ParseTuple({false, false, "recursive"}));
    if (TakeName("if")) {
      TN_ASSIGN_OR_RETURN(loop->condition, ParseExpression());
    }
    loop->recursive = TakeName("recursive");
    ++break_depth_;
    TN_ASSIGN_OR_RETURN(Block block, ParseBlock({"endfor", "else"}));
    --break_depth_;
    loop->body = std::move(block.body);
    if (block.end == "else") {
      TN_ASSIGN_OR_RETURN(loop->otherwise, ParseBodyUntil("endfor"));
    }
    --for_depth_;
    return StmtPtr(std::move(loop));
  }

  Result<StmtPtr> ParseIf(int line) {
    auto branch = std::make_unique<IfStmt>(line);
    lenient_ = true;
    for (std::string end = "elif"; end == "elif";) {
      TN_ASSIGN_OR_RETURN(ExprPtr condition, ParseTuple({false, false, {}}));
      TN_ASSIGN_OR_RETURN(Block block, ParseBlock({"elif", "else", "endif"}));
      branch->branches.emplace_back(std::move(condition), std::move(block.body));
      end = block.end;
      if (end == "else") {
        TN_ASSIGN_OR_RETURN(branch->otherwise, ParseBodyUntil("endif"));
      }
    }
    return StmtPtr(std::move(branch));
  }

  Status ParseSignature(MacroCode& code) {
    TN_RETURN_IF_ERROR(ExpectOperator("("));
    while (!current().IsOperator(")")) {
      if (!code.parameters.empty()) TN_RETURN_IF_ERROR(ExpectOperator(","));
      const int line = current().line;
      TN_ASSIGN_OR_RETURN(const std::string name, TakeAnyName());
      TN_RETURN_IF_ERROR(NoteStore(name, line));
      if (TakeOperator("=")) {
        TN_ASSIGN_OR_RETURN(ExprPtr value, ParseExpression());
        code.defaults.push_back(std::move(value));
      } else if (!code.defaults.empty()) {
        return ErrorAt(line, fmt::format("parameter '{}' without a default follows one with a "
                                         "default",
                                         name));
      }
      code.parameters.emplace_back(IdOf(name), Value::ConstantText(name));
    }
    Take();
    return {};
  }

  // The body of a macro or call block; notes which special variables it reads.
  Status ParseMacroBody(std::string_view end, MacroCode& code) {
    const int break_depth = break_depth_;
    break_depth_ = 0;
    macros_.emplace_back();
    TN_ASSIGN_OR_RETURN(code.body, ParseBodyUntil(end));
    const MacroNotes notes = macros_.back();
    macros_.pop_back();
    break_depth_ = break_depth;
    const auto has_parameter = [&](std::string_view name) {
      return std::any_of(code.parameters.begin(), code.parameters.end(),
                         [&](const auto& parameter) { return parameter.second.text() == name; });
    };
    code.has_caller_parameter = has_parameter("caller");
    const size_t first_default = code.parameters.size() - code.defaults.size();
    for (size_t i = 0; i < first_default; ++i) {
      if (code.parameters[i].second.text() != "caller" || !notes.reads[0]) continue;
      return ErrorAt(code.line, "the parameter 'caller' needs a default, or leave it out");
    }
    code.uses_caller = notes.reads[0] && !code.has_caller_parameter;
    code.uses_kwargs = notes.reads[1] && !has_parameter("kwargs");
    code.uses_varargs = notes.reads[2] && !has_parameter("varargs");
    return {};
  }

  Result<StmtPtr> ParseMacro(int line) {
    auto macro = std::make_unique<MacroStmt>(line);
    const int name_line = current().line;
    TN_ASSIGN_OR_RETURN(macro->code.name, TakeAnyName());
    TN_RETURN_IF_ERROR(NoteStore(macro->code.name, name_line));
    macro->id = IdOf(macro->code.name);
    macro->code.line = line;
    TN_RETURN_IF_ERROR(ParseSignature(macro->code));
    TN_RETURN_IF_ERROR(ParseMacroBody("endmacro", macro->code));
    return StmtPtr(std::move(macro));
  }

  Result<StmtPtr> ParseCallBlock(int line) {
    auto block = std::make_unique<CallBlockStmt>(line);
    block->code.line = line;
    if (current().IsOperator("(")) TN_RETURN_IF_ERROR(ParseSignature(block->code));
    TN_ASSIGN_OR_RETURN(ExprPtr call, ParseExpression());
    if (call->kind != ExprKind::kCall) return ErrorAt(line, "{% call %} needs a call of a macro");
    block->call.reset(static_cast<CallExpr*>(call.release()));
    TN_RETURN_IF_ERROR(ParseMacroBody("endcall", block->code));
    return StmtPtr(std::move(block));
  }

  Result<StmtPtr> ParseFilterBlock(int line) {
    auto block = std::make_unique<FilterBlockStmt>(line);
    TN_ASSIGN_OR_RETURN(block->filter, ParseFilters(nullptr, true));
    TN_ASSIGN_OR_RETURN(block->body, ParseBodyUntil("endfilter"));
    return StmtPtr(std::move(block));
  }

  Result<StmtPtr> ParseWith(int line) {
    auto with = std::make_unique<WithStmt>(line);
    while (current().type != TokenType::kBlockEnd) {
      if (!with->assignments.empty()) TN_RETURN_IF_ERROR(ExpectOperator(","));
      TN_ASSIGN_OR_RETURN(Target target, ParseSingleTarget(false));
      TN_RETURN_IF_ERROR(ExpectOperator("="));
      TN_ASSIGN_OR_RETURN(ExprPtr value, ParseExpression());
      with->assignments.emplace_back(std::move(target), std::move(value));
    }
    TN_ASSIGN_OR_RETURN(with->body, ParseBodyUntil("endwith"));
    return StmtPtr(std::move(with));
  }

  Result<StmtPtr> ParseBlockTag(int line) {
    auto block = std::make_unique<BlockStmt>(line);
    TN_ASSIGN_OR_RETURN(block->name, TakeAnyName());
    block->scoped = TakeName("scoped");
    block->required = TakeName("required");
    for (const BlockStmt* other : blocks_) {
      if (other->name == block->name) {
        return ErrorAt(line, fmt::format("block '{}' is defined twice", block->name));
      }
    }
    blocks_.push_back(block.get());
    const int break_depth = break_depth_;
    break_depth_ = 0;
    TN_ASSIGN_OR_RETURN(block->body, ParseBodyUntil("endblock"));
    break_depth_ = break_depth;
    TakeName(block->name);
    return StmtPtr(std::move(block));
  }

  Result<StmtPtr> ParseAutoescape(int line) {
    auto block = std::make_unique<AutoescapeStmt>(line);
    TN_ASSIGN_OR_RETURN(block->enabled, ParseExpression());
    TN_ASSIGN_OR_RETURN(block->body, ParseBodyUntil("endautoescape"));
    return StmtPtr(std::move(block));
  }

  Result<StmtPtr> ParseGeneration(int line) {
    auto block = std::make_unique<GenerationStmt>(line);
    const int break_depth = break_depth_;
    break_depth_ = 0;
    TN_ASSIGN_OR_RETURN(block->body, ParseBodyUntil("endgeneration"));
    break_depth_ = break_depth;
    return StmtPtr(std::move(block));
  }

  Result<StmtPtr> ParsePrint(int line) {
    auto print = std::make_unique<PrintStmt>(line);
    while (current().type != TokenType::kBlockEnd) {
      if (!print->values.empty()) TN_RETURN_IF_ERROR(ExpectOperator(","));
      TN_ASSIGN_OR_RETURN(ExprPtr value, ParseExpression());
      print->values.push_back(std::move(value));
    }
    return StmtPtr(std::move(print));
  }

  Result<StmtPtr> ParseBreak(int line) {
    if (break_depth_ == 0) return ErrorAt(line, "{% break %} outside a loop");
    return StmtPtr(std::make_unique<Stmt>(StmtKind::kBreak, line));
  }

  Result<StmtPtr> ParseContinue(int line) {
    if (break_depth_ == 0) return ErrorAt(line, "{% continue %} outside a loop");
    return StmtPtr(std::make_unique<Stmt>(StmtKind::kContinue, line));
  }

  // What follows the tag does not matter: there is nothing to load from.
  Result<StmtPtr> ParseLoad(int line) {
    auto load = std::make_unique<LoadStmt>(line);
    load->tag = "include, import, from or extends";
    while (current().type != TokenType::kBlockEnd && current().type != TokenType::kEnd) Take();
    return StmtPtr(std::move(load));
  }

  std::vector<std::vector<std::string_view>> open_tags_;
  std::vector<const BlockStmt*> blocks_;
  int break_depth_ = 0;
};

}  // namespace

Result<std::unique_ptr<const Program>> ParseTemplate(std::string_view source,
                                                     std::string_view name) {
  const auto parse = [&]() -> Result<std::unique_ptr<const Program>> {
    if (source.size() > kMaxTemplateBytes) {
      return Refused(
          fmt::format("{} bytes, at most {} are served", source.size(), kMaxTemplateBytes));
    }
    if (!IsValidUtf8(source)) return Refused("not valid UTF-8");
    TN_ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(source));
    return StmtParser(std::move(tokens)).Run();
  };
  Result<std::unique_ptr<const Program>> program = parse();
  if (program.ok()) return program;
  const std::string_view separator = program.message().starts_with("line ") ? ", " : ": ";
  return Refused(fmt::format("template '{}'{}{}", name, separator, program.message()));
}

}  // namespace tenon::jinja
