#include "tenon/config/name_regex.h"

#include <fmt/format.h>

#include <array>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "tenon/base/text.h"

namespace tenon {
namespace {

// Steps that a sane pattern over a name of a hundred characters never needs.
constexpr uint32_t kMatchLimit = 200'000;
constexpr uint32_t kHeapLimitKib = 4096;
constexpr size_t kLongestPattern = 4096;

std::string ErrorText(int code) {
  std::array<unsigned char, 256> buffer{};
  pcre2_get_error_message(code, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

struct Free {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};

}  // namespace

struct NameRegex::Compiled {
  std::unique_ptr<pcre2_code, Free> code;
  std::unique_ptr<pcre2_match_context, Free> context;
};

NameRegex::NameRegex(std::string pattern)
    : pattern_(std::move(pattern)), compiled_(std::make_unique<Compiled>()) {}
NameRegex::NameRegex(NameRegex&&) noexcept = default;
NameRegex& NameRegex::operator=(NameRegex&&) noexcept = default;
NameRegex::~NameRegex() = default;

Result<NameRegex> NameRegex::Compile(std::string pattern, Extent extent) {
  if (pattern.size() > kLongestPattern) {
    return Refused(fmt::format("the pattern '{}' has {} characters, allowed: {}",
                               Printable(pattern, 80), pattern.size(), kLongestPattern));
  }
  NameRegex regex(std::move(pattern));
  const uint32_t options =
      PCRE2_ANCHORED | PCRE2_NEVER_BACKSLASH_C | (extent == Extent::kWhole ? PCRE2_ENDANCHORED : 0);
  int error = 0;
  PCRE2_SIZE offset = 0;
  regex.compiled_->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(regex.pattern_.data()),
                                            regex.pattern_.size(), options, &error, &offset,
                                            nullptr));
  if (regex.compiled_->code == nullptr) {
    return Refused(fmt::format("the pattern '{}' is no regular expression: {} (offset {})",
                               Printable(regex.pattern_, 200), ErrorText(error), offset));
  }
  pcre2_jit_compile(regex.compiled_->code.get(), PCRE2_JIT_COMPLETE);  // without it: only slower
  regex.compiled_->context.reset(pcre2_match_context_create(nullptr));
  pcre2_set_match_limit(regex.compiled_->context.get(), kMatchLimit);
  pcre2_set_heap_limit(regex.compiled_->context.get(), kHeapLimitKib);
  return regex;
}

Result<bool> NameRegex::Matches(std::string_view name) const {
  const std::unique_ptr<pcre2_match_data, Free> data(pcre2_match_data_create(1, nullptr));
  const int result = pcre2_match(compiled_->code.get(), reinterpret_cast<PCRE2_SPTR>(name.data()),
                                 name.size(), 0, 0, data.get(), compiled_->context.get());
  if (result == PCRE2_ERROR_NOMATCH) return false;
  if (result >= 0) return true;
  return Refused(fmt::format("the pattern '{}' gave up on '{}': {}", Printable(pattern_, 200),
                             Printable(name, 200), ErrorText(result)));
}

}  // namespace tenon
