// Texts to option values: one parser per kind. Internal to the option table. Pure functions;
// thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/config/option_table.h"

namespace tenon {

// Each: the value, or nothing when the text is none of the row's (kind, range, `allowed`).
// `allowed` holds the row's expanded words; empty: any.
std::optional<bool> ParseFlag(std::string_view text);
std::optional<double> ParseReal(const OptionRow& row, std::string_view text);
// `word` is set when the text is the row's word for null.
std::optional<int64_t> ParseInteger(const OptionRow& row, const std::vector<std::string>& allowed,
                                    std::string_view text, bool& word);
// The allowed value's own spelling.
std::optional<std::string> ParseChoice(const std::vector<std::string>& allowed,
                                       std::string_view text);
// "full=bf16,window=int8" with keys of the row, each once, in the allowed values' spelling.
std::optional<std::string> ParseByKey(const OptionRow& row, const std::vector<std::string>& allowed,
                                      std::string_view text);

}  // namespace tenon
