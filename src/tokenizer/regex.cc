#include "tenon/tokenizer/regex.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <mutex>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "tenon/tokenizer/regex_syntax.h"
#include "tenon/tokenizer/unicode.h"
#include "tenon/tokenizer/unicode_additions.h"

namespace tenon {
namespace {

constexpr size_t kJitStackStart = 64 << 10;
constexpr size_t kJitStackMax = 64 << 20;

std::string ErrorText(int code) {
  std::array<unsigned char, 256> buffer{};
  pcre2_get_error_message(code, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

struct CodeDeleter {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct CompileContextDeleter {
  void operator()(pcre2_compile_context* context) const { pcre2_compile_context_free(context); }
};
struct MatchContextDeleter {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
struct MatchDataDeleter {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
struct JitStackDeleter {
  void operator()(pcre2_jit_stack* stack) const { pcre2_jit_stack_free(stack); }
};

}  // namespace

struct Regex::Compiled {
  std::unique_ptr<pcre2_code, CodeDeleter> code;
  bool has_jit = false;
};

struct RegexSearch::State {
  std::unique_ptr<pcre2_match_data, MatchDataDeleter> data;
  std::unique_ptr<pcre2_match_context, MatchContextDeleter> context;  // once a big stack is needed
  std::unique_ptr<pcre2_jit_stack, JitStackDeleter> stack;
};

struct Regex::Extended {
  std::once_flag once;
  std::unique_ptr<const Compiled> compiled;
};

Regex::Regex(std::string pattern, std::unique_ptr<const Compiled> compiled)
    : pattern_(std::move(pattern)),
      compiled_(std::move(compiled)),
      extended_(std::make_unique<Extended>()) {}
Regex::~Regex() = default;

Result<std::shared_ptr<const Regex>> Regex::Compile(std::string_view pattern) {
  if (FindInvalidUtf8(pattern) != std::string_view::npos) {
    return Refused("a regex of the tokenizer is not valid UTF-8");
  }
  TN_ASSIGN_OR_RETURN(std::unique_ptr<const Compiled> compiled, CompileTranslated(pattern, false));
  return std::shared_ptr<const Regex>(new Regex(std::string(pattern), std::move(compiled)));
}

Result<std::unique_ptr<const Regex::Compiled>> Regex::CompileTranslated(std::string_view pattern,
                                                                        bool with_additions) {
  TN_ASSIGN_OR_RETURN(const std::string translated, TranslateToPcre2(pattern, with_additions));
  const std::unique_ptr<pcre2_compile_context, CompileContextDeleter> context(
      pcre2_compile_context_create(nullptr));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  // Ruby's ^ and $ are always those of lines.
  constexpr uint32_t kOptions =
      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NO_UTF_CHECK | PCRE2_NEVER_BACKSLASH_C;
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto compiled = std::make_unique<Compiled>();
  compiled->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()),
                                     translated.size(), kOptions, &error, &offset, context.get()));
  if (compiled->code == nullptr) {
    return Refused(fmt::format("regex '{}' is not supported: {} (offset {} of '{}')", pattern,
                               ErrorText(error), offset, translated));
  }
  compiled->has_jit = pcre2_jit_compile(compiled->code.get(), PCRE2_JIT_COMPLETE) == 0;
  return std::unique_ptr<const Compiled>(std::move(compiled));
}

const Regex::Compiled& Regex::FormFor(std::string_view text) const {
  if (!HasUnicodeAdditions(text)) return *compiled_;
  std::call_once(extended_->once, [this] {
    auto compiled = CompileTranslated(pattern_, true);
    if (compiled.ok()) extended_->compiled = *std::move(compiled);
  });
  // Too large a pattern with all those ranges: the newest characters then stay unassigned.
  return extended_->compiled == nullptr ? *compiled_ : *extended_->compiled;
}

RegexSearch::RegexSearch(const Regex& regex, std::string_view whole)
    : regex_(regex), compiled_(regex.FormFor(whole)), state_(std::make_unique<State>()) {
  state_->data.reset(pcre2_match_data_create(1, nullptr));
}
RegexSearch::~RegexSearch() = default;

void RegexSearch::Start(std::string_view text) {
  text_ = text;
  position_ = 0;
  last_end_ = 0;
  matched_before_ = false;
}

bool RegexSearch::Next(Range* match) {
  const Regex::Compiled& compiled = compiled_;
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text_.data());
  const auto run = [&](auto* function, uint32_t options) {
    return function(compiled.code.get(), subject, text_.size(), position_, options,
                    state_->data.get(), state_->context.get());
  };
  while (status_.ok() && position_ <= text_.size()) {
    int result = compiled.has_jit ? run(pcre2_jit_match, 0) : run(pcre2_match, PCRE2_NO_UTF_CHECK);
    if (result == PCRE2_ERROR_JIT_STACKLIMIT && state_->stack == nullptr) {
      state_->context.reset(pcre2_match_context_create(nullptr));
      state_->stack.reset(pcre2_jit_stack_create(kJitStackStart, kJitStackMax, nullptr));
      pcre2_jit_stack_assign(state_->context.get(), nullptr, state_->stack.get());
      continue;
    }
    if (result == PCRE2_ERROR_JIT_STACKLIMIT) {
      result = run(pcre2_match, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT);
    }
    if (result == PCRE2_ERROR_NOMATCH) return false;
    if (result < 0) {
      status_ = UsageError(fmt::format("the tokenizer's regex '{}' gave up on this text: {}",
                                       regex_.pattern_, ErrorText(result)));
      return false;
    }
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(state_->data.get());
    // \K can move a start; matches still never overlap.
    const PCRE2_SIZE end = std::max(bounds[1], PCRE2_SIZE{last_end_});
    const PCRE2_SIZE begin = std::clamp(bounds[0], PCRE2_SIZE{last_end_}, end);
    if (begin == end && matched_before_ && last_end_ == end) {
      position_ += position_ < text_.size() ? Utf8Length(text_[position_]) : 1;
      continue;
    }
    position_ = end;
    last_end_ = end;
    matched_before_ = true;
    *match = {static_cast<uint32_t>(begin), static_cast<uint32_t>(end)};
    return true;
  }
  return false;
}

}  // namespace tenon
