// PerLayer: a value that a config states once for all layers or as a list with one entry per layer
// (GGUF arrays, hybrid models). Not for values that differ by layer *kind*; families hold those by
// name. A value; thread-compatible.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "tenon/base/check.h"

namespace tenon {

template <typename T>
class PerLayer {
 public:
  // The same for every layer.
  PerLayer(T value = {})
      : values_{std::move(value)}, listed_(false) {}  // NOLINT(google-explicit-constructor)
  // One entry per layer, at least one. The reader has checked the count.
  static PerLayer List(std::vector<T> values) {
    TN_CHECK(!values.empty(), "a list per layer has at least one entry");
    return PerLayer(std::move(values), true);
  }

  // layer: 0 up to the number of layers; a list is never shorter.
  T operator[](int64_t layer) const {
    if (!listed_) return values_[0];
    TN_CHECK(layer >= 0 && layer < static_cast<int64_t>(values_.size()), "layer out of range");
    return values_[static_cast<size_t>(layer)];
  }
  bool is_list() const { return listed_; }
  // Do all layers have one value (also when it was listed)?
  bool IsUniform() const {
    return std::all_of(values_.begin(), values_.end(),
                       [&](const T& value) { return value == values_[0]; });
  }
  T Max() const { return *std::max_element(values_.begin(), values_.end()); }
  // One entry, or one per layer.
  const std::vector<T>& values() const { return values_; }

  friend bool operator==(const PerLayer&, const PerLayer&) = default;

 private:
  PerLayer(std::vector<T> values, bool listed) : values_(std::move(values)), listed_(listed) {}

  std::vector<T> values_;
  bool listed_;
};

}  // namespace tenon
