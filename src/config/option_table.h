// The option table: one row per option. The command line, the environment, --config files, --help
// and docs/options.md all read it; resolution goes leaf by leaf by who set a value: command line >
// environment > config file > model defaults > generation_config.json > engine default. Reads no
// environment and no arguments itself: they are handed in. Immutable; thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tenon/base/json.h"
#include "tenon/base/status.h"
#include "tenon/config/engine_options.h"
#include "tenon/config/generation_config.h"

namespace tenon {

enum class OptionKind { kFlag, kInt, kReal, kString, kSize, kEnum, kList, kPath };
std::string_view NameOf(OptionKind kind);
enum class OptionStatus { kStable, kBeta, kExperimental };
std::string_view NameOf(OptionStatus status);

// Bits: an option belongs to several commands.
enum Command : uint32_t {
  kRun = 1u << 0,
  kExplain = 1u << 1,
  kModels = 1u << 2,
  kLogits = 1u << 3,
  kTokenize = 1u << 4,
  kRender = 1u << 5,
  kInspect = 1u << 6,
  kBench = 1u << 7,
  kBackends = 1u << 8,
};
inline constexpr uint32_t kAllCommands = (1u << 9) - 1;
// "run, serve"; "all".
std::string CommandNames(uint32_t commands);

using OptionField =
    std::variant<Sourced<bool> EngineOptions::*, Sourced<int64_t> EngineOptions::*,
                 Sourced<std::optional<int64_t>> EngineOptions::*, Sourced<double> EngineOptions::*,
                 Sourced<std::string> EngineOptions::*,
                 Sourced<std::vector<std::string>> EngineOptions::*>;

struct OptionRow {
  const char* name;  // "attn-backend": --attn-backend, TENON_ATTN_BACKEND, attn-backend: in YAML
  OptionKind kind;
  OptionField field;
  const char* default_text;  // as a user would write it; a word in a number's place is its null
  const char* allowed;       // "auto|f32|bf16"; "{isa}", "{attn-backend}": see OptionChoices
  double low;                // of numbers, both ends included
  double high;
  const char* unit;
  uint32_t commands;
  const char* help;
  OptionStatus status = OptionStatus::kStable;
  const char* short_name = "";  // "n": also -n
  char separator = 0;           // of lists in one text; 0: each setting is one entry
  const char* keys = "";        // "full|window": also one value for each, "full=bf16,window=int8"
};

// Allowed values that other layers know.
struct OptionChoices {
  std::vector<std::string> attention_backends;  // without "auto"
};

// A value as somebody wrote it. Flags: "true".
struct OptionSetting {
  std::string name;  // without dashes; a short name counts too
  std::string value;
};
struct OptionInputs {
  uint32_t command = 0;  // one Command
  // In the order given: of a repeated option the last counts; lists collect.
  std::vector<OptionSetting> command_line = {};
  // All variables that start with TENON_ (EnvWithPrefix).
  std::vector<std::pair<std::string, std::string>> environment = {};
};
// A model family's wish: "kv-dtype", "f32", "its values exceed bf16's precision".
struct OptionDefault {
  std::string name;
  std::string value;
  std::string why;
};

class OptionTable {
 public:
  explicit OptionTable(OptionChoices choices);

  std::span<const OptionRow> rows() const;
  // By name or short name; null when there is none.
  const OptionRow* Find(std::string_view name) const;
  static std::string EnvNameOf(const OptionRow& row);
  // "auto | NATIVE | VANILLA", "0 .. 1", "": what a value may be.
  std::string AllowedText(const OptionRow& row) const;

  EngineOptions Defaults() const;
  // Command line, environment and the --config file over the engine's defaults. Every problem of
  // all three at once (kUsage): unknown names with near ones, values that cannot be.
  Result<EngineOptions> Resolve(const OptionInputs& inputs) const;
  // Sets what nobody stronger has set. The order of calls does not matter.
  Status OfferModelDefaults(std::span<const OptionDefault> defaults, EngineOptions& options) const;
  void OfferGeneration(const GenerationConfig& generation, EngineOptions& options) const;

  // One option as it stands, for decisions.
  struct State {
    std::string value;
    Origin origin;
  };
  State StateOf(const OptionRow& row, const EngineOptions& options) const;

  // [{"option", "value", "origin"}], in the table's order.
  Json ToJson(const EngineOptions& options) const;
  // The table of docs/options.md.
  std::string Markdown() const;

 private:
  std::vector<std::string> AllowedValues(const OptionRow& row) const;
  Status Set(const OptionRow& row, std::string_view text, const Origin& origin,
             EngineOptions& options) const;
  Status CannotBe(const OptionRow& row, std::string_view text, const Origin& origin) const;
  void CheckNames(const EngineOptions& options, std::vector<std::string>& errors) const;
  Status SetText(const OptionRow& row, std::string_view text, const Origin& origin,
                 EngineOptions& options) const;
  void ApplyFile(const std::string& path, EngineOptions& options,
                 std::vector<std::string>& errors) const;

  OptionChoices choices_;
};

// Bytes: "8G", "512MiB", "1.5GB", "4096". K, M, G, T (also KiB, ...) count in 1024s, KB, MB, GB, TB
// in 1000s; any case.
Result<int64_t> ParseSize(std::string_view text);

}  // namespace tenon
