// Template source to a Program (jinja_ast.h). Follows Jinja 2's grammar with the extensions of the
// Hugging Face renderer: break, continue, generation. Does not evaluate anything. Thread-safe.
#pragma once

#include <memory>
#include <string_view>

#include "tenon/tokenizer/jinja_ast.h"

namespace tenon::jinja {

inline constexpr size_t kMaxTemplateBytes = size_t{4} << 20;
inline constexpr int kMaxExprDepth = 300;     // levels of a syntax tree
inline constexpr int kMaxParseNesting = 150;  // brackets and blocks inside each other

// Errors say "template 'name', line N: what is wrong".
Result<std::unique_ptr<const Program>> ParseTemplate(std::string_view source,
                                                     std::string_view name);

}  // namespace tenon::jinja
