// Template source to tokens, with Jinja's whitespace rules as Hugging Face sets them: trim_blocks,
// lstrip_blocks, one trailing newline dropped, `-` and `+` marks. Comments and raw markers are gone
// from the result. Not a parser. Pure function, thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tenon/base/status.h"
#include "tenon/tokenizer/jinja_value.h"

namespace tenon::jinja {

enum class TokenType {
  kData,           // text between tags
  kVariableBegin,  // {{
  kVariableEnd,
  kBlockBegin,  // {%
  kBlockEnd,
  kName,
  kString,  // unescaped
  kInteger,
  kFloat,
  kOperator,  // text = the operator
  kEnd
};

struct Token {
  TokenType type;
  int line;  // from 1
  std::string text;
  Value number;  // of kInteger and kFloat

  bool IsOperator(std::string_view op) const { return type == TokenType::kOperator && text == op; }
  bool IsName(std::string_view name) const { return type == TokenType::kName && text == name; }
};

// "'endif'", "end of print statement": how messages name a token.
std::string DescribeToken(const Token& token);

// Errors say "line N: what is wrong". The last token is kEnd.
Result<std::vector<Token>> Tokenize(std::string_view source);

}  // namespace tenon::jinja
