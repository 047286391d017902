// Numbers in tensor names: "model.layers.3.mlp.w1.weight" has one, 3 (whole parts between dots).
// Internal to this layer. Pure functions, thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tenon {

inline constexpr int64_t kPlaceholder = -1;  // `{}` in a pattern

// The name with every number as `{}`; `numbers` receives them, kPlaceholder for a `{}` that was
// there.
std::string PatternKey(std::string_view name, std::vector<int64_t>& numbers);
// The pattern with its `{}` replaced in order; kPlaceholder leaves one as it is.
std::string FillPattern(std::string_view pattern, std::span<const int64_t> numbers);

}  // namespace tenon
