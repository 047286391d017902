#include "tenon/modules/quantise.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "tenon/base/text.h"
#include "tenon/checkpoint/name_pattern.h"
#include "tenon/config/glob.h"
#include "tenon/modules/linear_method.h"

namespace tenon {
namespace {

constexpr std::string_view kWeight = ".weight";

std::string_view ParentOf(std::string_view name) {
  const size_t dot = name.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : name.substr(0, dot);
}

QuantKeySet::Spellings SpellingsOf(const LoadContext& context) {
  if (context.index == nullptr) return {};
  return [table = &context.index->table()](const std::string& name) {
    std::vector<std::string> names = table->CanonicalModules(name);
    names.push_back(table->Normalise(name));
    return names;
  };
}

}  // namespace

Quantiser::Quantiser(LoadContext& context, const QuantRules& rules,
                     std::span<const std::string> skippable)
    : context_(context), rules_(rules), skippable_(skippable) {
  const auto compile = [&](std::vector<QuantKey> keys, std::optional<QuantKeySet>& set) {
    Result<QuantKeySet> compiled = QuantKeySet::Compile(std::move(keys), SpellingsOf(context));
    if (compiled.ok()) {
      set = *std::move(compiled);
    } else {
      context.Error(fmt::format("{}; set by {}", compiled.status().message(), rules.origin.Text()));
    }
  };
  std::vector<QuantKey> layer_keys;
  for (const QuantRules::LayerScheme& layer : rules.layers) layer_keys.push_back(layer.key);
  compile(rules.excludes, excludes_);
  compile(std::move(layer_keys), layers_);
}

std::string_view Quantiser::TextOf(Reason reason) {
  switch (reason) {
    case Reason::kGlobal:
      return "the scheme for all layers";
    case Reason::kOwnKey:
      return "a key of its own";
    case Reason::kFusedKey:
      return "the key of its fused layer";
    case Reason::kExpertsKey:
      return "a key of its experts";
    case Reason::kExcluded:
      return "excluded";
    case Reason::kUnscaled:
      return "the file has no scales for it";
  }
  return "";
}

std::vector<int> Quantiser::Match(std::optional<QuantKeySet>& keys, std::string_view module) {
  if (!keys || failed_) return {};
  std::vector<int64_t> numbers;
  const std::string numberless = PatternKey(module, numbers);
  Result<std::vector<int>> hits = keys->Match({module, numberless});
  if (hits.ok()) return *std::move(hits);
  failed_ = true;  // the next name would say the same
  context_.Error(fmt::format("{}; set by {}", hits.status().message(), rules_.origin.Text()));
  return {};
}

std::vector<int> Quantiser::MatchSpellings(std::optional<QuantKeySet>& keys,
                                           std::string_view path) {
  std::vector<int> hits = Match(keys, path);
  if (context_.index == nullptr) return hits;
  std::string_view stored = context_.index->StoredNameOf(fmt::format("{}{}", path, kWeight));
  if (stored.ends_with(kWeight)) stored.remove_suffix(kWeight.size());
  if (stored.empty() || stored == path) return hits;
  const std::vector<int> more = Match(keys, stored);
  hits.insert(hits.end(), more.begin(), more.end());
  return hits;
}

bool Quantiser::IsExcluded(const LinearName& name) {
  const bool own = !MatchSpellings(excludes_, name.path).empty();
  const bool fused =
      !name.fused.empty() && name.fused != name.path && !Match(excludes_, name.fused).empty();
  return own || fused;
}

const QuantScheme* Quantiser::BestOf(const std::vector<int>& hits) const {
  const QuantRules::LayerScheme* best = nullptr;
  for (const int hit : hits) {
    const QuantRules::LayerScheme& layer = rules_.layers[static_cast<size_t>(hit)];
    const bool is_name = layer.key.match == QuantKey::Match::kName;
    // Of equals the first one; spellings may have brought them out of order.
    if (best == nullptr || (is_name && best->key.match != QuantKey::Match::kName) ||
        (is_name == (best->key.match == QuantKey::Match::kName) && &layer < best)) {
      best = &layer;
    }
  }
  return best == nullptr ? nullptr : &best->scheme;
}

// A key for all experts, for one of them, or, as writers do that quantise experts alike, for a
// matrix of another one.
const QuantScheme* Quantiser::SchemeOfExperts(const LinearName& name) {
  const std::string_view module = ParentOf(name.experts);
  for (std::string_view at = ParentOf(name.path); at.size() >= module.size() && !at.empty();
       at = ParentOf(at)) {
    if (const QuantScheme* scheme = BestOf(Match(layers_, at))) return scheme;
  }
  const int inside = layers_ ? layers_->FirstInside(name.experts) : -1;
  return inside < 0 ? nullptr : &rules_.layers[static_cast<size_t>(inside)].scheme;
}

const QuantScheme* Quantiser::SchemeOfLayer(const LinearName& name, Reason& reason) {
  if (rules_.layers.empty()) return nullptr;
  reason = Reason::kOwnKey;
  if (const QuantScheme* own = BestOf(MatchSpellings(layers_, name.path))) return own;
  reason = Reason::kFusedKey;
  if (!name.fused.empty() && name.fused != name.path) {
    if (const QuantScheme* fused = BestOf(Match(layers_, name.fused))) return fused;
  }
  reason = Reason::kExpertsKey;
  return name.experts.empty() ? nullptr : SchemeOfExperts(name);
}

bool Quantiser::HasScales(const std::string& path, const QuantScheme& scheme) const {
  return context_.index != nullptr &&
         std::any_of(scheme.scale_names.begin(), scheme.scale_names.end(),
                     [&](const std::string& scales) {
                       return context_.index->Find(fmt::format("{}.{}", path, scales)) != nullptr;
                     });
}

const QuantScheme* Quantiser::Decide(const LinearName& name, Reason& reason) {
  // Both lists are asked whatever the other says: each key that means something is known then.
  const bool excluded = IsExcluded(name);
  const QuantScheme* layer = SchemeOfLayer(name, reason);
  if (excluded) {
    reason = Reason::kExcluded;
    return &PlainScheme();
  }
  if (layer != nullptr) return layer;
  reason = Reason::kGlobal;
  if (name.only_where_scaled && !HasScales(name.path, rules_.global)) {
    reason = Reason::kUnscaled;
    return &PlainScheme();
  }
  return &rules_.global;
}

const QuantScheme* Quantiser::SchemeOf(const LinearName& name) {
  Reason reason = Reason::kGlobal;
  const QuantScheme* scheme = Decide(name, reason);
  Count(name.path, scheme, reason);
  return scheme;
}

void Quantiser::Count(const std::string& path, const QuantScheme* scheme, Reason reason) {
  std::vector<int64_t> numbers;
  std::string numberless = PatternKey(path, numbers);
  std::vector<size_t>& alike = groups_of_[numberless];
  for (const size_t index : alike) {
    Group& group = groups_[index];
    if (group.reason != reason || (group.scheme != scheme && *group.scheme != *scheme)) continue;
    ++group.matrices;
    return;
  }
  alike.push_back(groups_.size());
  groups_.push_back({std::move(numberless), scheme, reason, 1});
}

void Quantiser::Complain(const QuantKey& key, std::string_view kind) {
  std::vector<std::string> near;
  if (context_.index != nullptr) {
    for (std::string& name : context_.index->NearNames(fmt::format("{}{}", key.text, kWeight))) {
      if (name.ends_with(kWeight)) name.resize(name.size() - kWeight.size());
      near.push_back(std::move(name));
    }
  } else {
    std::vector<std::string> names;
    for (const Group& group : groups_) names.push_back(group.numberless);
    near = NearNames(key.text, names);
  }
  context_.Error(fmt::format(
      "quantisation {}: {} '{}' matches no module{}; set by {}; fix: the config.json that belongs "
      "to these weights",
      NameOf(rules_.method), kind, Printable(key.text, 200),
      near.empty() ? "" : "; nearest: " + Join(near, ", "), rules_.origin.Text()));
}

void Quantiser::CheckUnmatched() {
  const auto is_skippable = [&](std::string_view tensor) {
    return std::any_of(skippable_.begin(), skippable_.end(),
                       [&](const std::string& pattern) { return GlobMatches(pattern, tensor); });
  };
  const auto has_unmatched = [](const std::optional<QuantKeySet>& keys) {
    return keys && !keys->Unmatched().empty();
  };
  // An exclude may name anything that is there; a scheme only what is left out with its tensors.
  if (has_unmatched(excludes_)) {
    for (const Module* module : context_.modules) Match(excludes_, module->path());
  }
  if (context_.index != nullptr && (has_unmatched(excludes_) || has_unmatched(layers_))) {
    std::string_view last;  // a module's tensors are neighbours
    const auto match = [&](std::string_view module, bool skipped) {
      if (module == last) return;
      last = module;
      Match(excludes_, module);
      if (skipped) Match(layers_, module);
    };
    for (const IndexedTensor& tensor : context_.index->tensors()) {
      const bool skipped = is_skippable(tensor.stored->name);
      match(ParentOf(tensor.name), skipped);
      match(ParentOf(tensor.stored->name), skipped);
    }
  }
  const auto complain = [&](const std::optional<QuantKeySet>& keys, std::string_view kind) {
    if (!keys) return;
    for (const int index : keys->Unmatched()) {
      const QuantKey& key = keys->keys()[static_cast<size_t>(index)];
      if (!is_skippable(fmt::format("{}{}", key.text, kWeight))) Complain(key, kind);
    }
  };
  complain(excludes_, "exclude");
  complain(layers_, "layer");
}

void Quantiser::RecordDecisions() {
  std::set<InputFormat> inputs;
  for (const Group& group : groups_) {
    if (group.scheme->input != InputFormat::kNone) inputs.insert(group.scheme->input);
    context_.Record({.field = "quantisation",
                     .requested = group.numberless,
                     .resolved = group.scheme->Text(),
                     .by = rules_.origin.Text(),
                     .why = fmt::format("{}; {} matrices", TextOf(group.reason), group.matrices)});
  }
  for (const InputFormat input : inputs) {
    const bool rounds =
        input == InputFormat::kInt8PerToken && context_.options.compute.value != Compute::kFp32;
    context_.Record(
        {.field = "quantisation.inputs",
         .requested = std::string(NameOf(input)),
         .resolved = rounds ? "int8 where the kernels multiply it"
                            : std::string(NameOf(context_.options.compute.value)),
         .by = "compute",
         .why = rounds ? "as the checkpoint was made" : "finer than the checkpoint asks for"});
  }
  if (!rules_.unread.empty()) {
    context_.Record({.field = "quantisation.settings",
                     .requested = Join(rules_.unread, ", "),
                     .resolved = "not read",
                     .by = rules_.origin.Text(),
                     .why = "no setting that changes weights"});
  }
}

void Quantiser::Finish() {
  if (failed_) return;
  CheckUnmatched();
  RecordDecisions();
}

void QuantiseModules(LoadContext& context, const QuantRules& rules,
                     std::span<const std::string> skippable) {
  if (rules.method == QuantMethod::kNone) return;
  Quantiser quantiser(context, rules, skippable);
  for (Module* module : context.modules) module->Quantise(quantiser);
  quantiser.Finish();
}

}  // namespace tenon
