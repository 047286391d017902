// ConfigReader: how a family reads its keys out of config.json, or out of the same keys built from
// GGUF metadata. It remembers every key that was read, by which alias and from where, collects
// errors instead of stopping at the first, and knows the keys that nobody read. No model's keys are
// named here. A handle: nested readers share one record. Not thread-safe.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tenon/base/json.h"
#include "tenon/base/ledger.h"
#include "tenon/base/status.h"
#include "tenon/config/per_layer.h"

namespace tenon {

// A config as a tree, with what its values are called.
struct ConfigSource {
  Json json;
  std::string name = "config.json";
  // Path ("rope_scaling.factor") -> origin ("GGUF: llama.rope.scaling.factor"), also for keys that
  // are absent. A path without an entry is called "<name>: <path>".
  std::map<std::string, std::string, std::less<>> origins = {};
  std::vector<std::string> unmapped = {};  // the container's keys that are not in `json`
};

// The names a key may go by; the first that is present and not null counts. May be empty: the
// family has no such key, the default holds.
class Keys {
 public:
  Keys() = default;
  Keys(const char* name) : names_{name} {}             // NOLINT(google-explicit-constructor)
  Keys(std::string name) : names_{std::move(name)} {}  // NOLINT(google-explicit-constructor)
  Keys(std::initializer_list<const char*> names) : names_(names.begin(), names.end()) {}
  const std::vector<std::string>& names() const { return names_; }

 private:
  std::vector<std::string> names_;
};

// Both ends belong to the range. Sizes are positive and fit in 32 bits unless said otherwise.
struct IntRange {
  int64_t low = 1;
  int64_t high = std::numeric_limits<int32_t>::max();
};
inline constexpr IntRange kPositive = {};
inline constexpr IntRange kNonNegative = {.low = 0};

struct RealRange {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool above_low = false;  // `low` itself is out
  bool finite = false;
};
inline constexpr RealRange kAnyReal = {};  // with infinities; never NaN
inline constexpr RealRange kPositiveReal = {.low = 0, .above_low = true, .finite = true};
inline constexpr RealRange kNonNegativeReal = {.low = 0, .finite = true};
inline constexpr RealRange kFraction = {.low = 0, .high = 1};

template <typename E>
struct EnumName {
  const char* name;
  E value;
};

class ConfigReader {
 public:
  explicit ConfigReader(ConfigSource source);
  explicit ConfigReader(Json config, std::string name = "config.json");

  // Three forms of every read. X(keys, fallback): absent or null gives the fallback, which is the
  // family's default and recorded as such. RequireX: absent is an error. XOrNull: absent is null. A
  // value of a wrong kind or out of range is an error; reading goes on with a placeholder inside
  // the range. 8.0 passes for the integer 8, and 0 or 1 for a boolean; both are noted in the
  // record.
  Sourced<int64_t> Int(const Keys& keys, int64_t fallback, IntRange range = kPositive);
  Sourced<int64_t> RequireInt(const Keys& keys, IntRange range = kPositive);
  Sourced<std::optional<int64_t>> IntOrNull(const Keys& keys, IntRange range = kPositive);
  Sourced<double> Double(const Keys& keys, double fallback, RealRange range = kAnyReal);
  Sourced<double> RequireDouble(const Keys& keys, RealRange range = kAnyReal);
  Sourced<std::optional<double>> DoubleOrNull(const Keys& keys, RealRange range = kAnyReal);
  Sourced<bool> Bool(const Keys& keys, bool fallback);
  Sourced<bool> RequireBool(const Keys& keys);
  Sourced<std::optional<bool>> BoolOrNull(const Keys& keys);
  Sourced<std::string> String(const Keys& keys, std::string fallback);
  Sourced<std::string> RequireString(const Keys& keys);
  Sourced<std::optional<std::string>> StringOrNull(const Keys& keys);

  // Lists. `IntsOrInt` also takes a single number (eos_token_id).
  Sourced<std::vector<int64_t>> Ints(const Keys& keys, std::vector<int64_t> fallback,
                                     IntRange range = kPositive);
  Sourced<std::vector<int64_t>> IntsOrInt(const Keys& keys, std::vector<int64_t> fallback,
                                          IntRange range = kPositive);
  Sourced<std::vector<double>> Doubles(const Keys& keys, std::vector<double> fallback,
                                       RealRange range = kAnyReal);
  Sourced<std::vector<std::string>> Strings(const Keys& keys, std::vector<std::string> fallback);

  // One number, or a list of exactly `layers` numbers; in a list 0 is allowed: such a layer has
  // none. No fallback: required.
  Sourced<PerLayer<int64_t>> PerLayerInt(const Keys& keys, const Sourced<int64_t>& layers,
                                         const std::optional<PerLayer<int64_t>>& fallback,
                                         IntRange range = kPositive);
  Sourced<PerLayer<bool>> PerLayerBool(const Keys& keys, const Sourced<int64_t>& layers,
                                       const std::optional<PerLayer<bool>>& fallback);

  // A string out of a fixed set. No fallback: required.
  //   reader.Enum<Routing>("scoring_func", {{"softmax", kSoftmax}, {"sigmoid", kSigmoid}},
  //   kSoftmax)
  template <typename E>
  Sourced<E> Enum(const Keys& keys, std::initializer_list<EnumName<E>> rows,
                  std::optional<E> fallback = std::nullopt) {
    std::vector<std::string> names;
    for (const EnumName<E>& row : rows) names.emplace_back(row.name);
    if (fallback && !Has(keys))
      return {*fallback, RecordDefault(keys, EnumNameOf(rows, *fallback))};
    const Sourced<int64_t> choice = RequireChoice(keys, names);
    return {(rows.begin() + choice.value)->value, choice.origin};
  }

  // Present under one of its names, and not null?
  bool Has(const Keys& keys) const;
  // There under one of its names, but null? For keys whose null says something else than their
  // absence, which the default is for.
  bool IsNull(const Keys& keys) const;
  // The raw value, recorded as read; null when absent or null. For keys of several kinds.
  const Json* Raw(const Keys& keys);
  // The same without recording anything.
  const Json* Peek(const Keys& keys) const;
  // Records that a present key has no effect here, and why.
  void NotUsed(const Keys& keys, std::string why);
  // A reader of an object inside this one (text_config, rope_scaling). Absent or null: of an empty
  // object. Its members are recorded and reported with their path.
  ConfigReader Nested(const Keys& keys);
  // From now on keys that are absent or null here are read from this object inside, where wrappers
  // of several modalities keep the language model's config. Nothing when it is no object.
  void AlsoLookIn(const Keys& keys);
  // Names of the members of this object, in the file's order.
  std::vector<std::string> MemberNames() const;
  // Keys that have no meaning here and are no surprise; a `*` may stand at either end.
  void Ignore(std::span<const char* const> patterns);
  void Ignore(std::initializer_list<const char*> patterns) {
    Ignore(std::span(patterns.begin(), patterns.size()));
  }

  // A problem with the value of a key, in words: "heads 5 do not divide hidden 64".
  void Error(const Keys& keys, std::string_view problem);
  void AddError(std::string text);
  bool ok() const;  // no errors so far, in the whole tree
  // All errors in one (kRefused).
  Status status() const;

  // Records a value that was computed instead of read, under a key's name.
  Origin RecordDerived(const Keys& keys, Json value, std::string how);
  Origin RecordDefault(const Keys& keys, Json value);
  // What a key is called in messages: "config.json: text_config.head_dim".
  std::string OriginText(const Keys& keys) const;
  const std::string& source_name() const;

  // Paths of the keys that nobody read or ignored, in the file's order.
  std::vector<std::string> UnreadKeys() const;
  // {"source", "read": [{"key", "value", "origin", "note"?}], "unread": [paths]}.
  Json ToJson() const;

 private:
  struct Shared;
  struct Access;  // the implementation, config_reader.cc
  friend struct Access;
  ConfigReader(std::shared_ptr<Shared> shared, const Json* node, std::string prefix);
  // The objects that are searched, with their prefixes.
  std::vector<std::pair<const Json*, std::string>> Places() const;
  Sourced<int64_t> RequireChoice(const Keys& keys, const std::vector<std::string>& names);
  template <typename E>
  static Json EnumNameOf(std::initializer_list<EnumName<E>> rows, E value) {
    for (const EnumName<E>& row : rows) {
      if (row.value == value) return row.name;
    }
    return nullptr;
  }

  std::shared_ptr<Shared> shared_;
  const Json* node_;    // an object, within shared_
  std::string prefix_;  // "text_config."; "" at the root
  // Where keys are looked for after node_; null: nowhere else.
  const Json* inner_ = nullptr;
  std::string inner_prefix_;
};

// Was this value unreadable, so that only a placeholder stands for it? A derived check then stays
// quiet: the error is already collected.
bool IsPlaceholder(const Origin& origin);

}  // namespace tenon
