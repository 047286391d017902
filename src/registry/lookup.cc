// The look-ups of the registry: open what the index or a declaration names, then read the slot.
#include <fmt/format.h>

#include <algorithm>

#include "tenon/base/text.h"
#include "tenon/registry/registry.h"

namespace tenon {
namespace {

// A name from a file may be anything.
constexpr size_t kLongestName = 200;

std::string DidYouMean(std::string_view name, std::span<const std::string> known) {
  const std::vector<std::string> near = NearNames(name, known);
  return near.empty() ? "" : "; did you mean " + Join(near, ", ") + "?";
}

}  // namespace

const ArchitectureRow* Registry::FindRow(std::string_view architecture) const {
  for (const ArchitectureRow& row : index_.architectures) {
    if (row.architecture == architecture) return &row;
  }
  return nullptr;
}

template <typename Entry>
std::optional<Registry::FoundEntry<Entry>> Registry::HeldBy(std::string_view name) const {
  const Slots& slots = SlotsOf(Entry::kSlot);
  const auto slot = slots.find(name);
  if (slot == slots.end()) return std::nullopt;
  return FoundEntry<Entry>{std::static_pointer_cast<const Entry>(slot->second.entry),
                           slot->second.owner->provider.name};
}

std::vector<std::string> Registry::ArchitecturesOfModelType(std::string_view model_type) const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  const auto add = [&](std::string_view name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.emplace_back(name);
  };
  if (const auto reader = HeldBy<ConfigReaderEntry>(model_type)) add(reader->entry->architecture);
  for (const auto& [name, slot] : SlotsOf(SlotKind::kModel)) {
    const auto& entry = *std::static_pointer_cast<const ModelEntry>(slot.entry);
    if (!slot.owner->provider.builtin && entry.traits.model_type == model_type) add(name);
  }
  for (const ArchitectureRow& row : index_.architectures) {
    if (row.model_type == model_type) add(row.architecture);
  }
  for (const ModelTypeRow& row : index_.model_types) {
    if (row.model_type == model_type) add(row.architecture);
  }
  return names;
}

std::vector<std::string> Registry::ModelTypes() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> types;
  for (const ArchitectureRow& row : index_.architectures) types.emplace_back(row.model_type);
  for (const ModelTypeRow& row : index_.model_types) types.emplace_back(row.model_type);
  for (const auto& [name, slot] : SlotsOf(SlotKind::kConfigReader)) types.push_back(name);
  for (const auto& [name, slot] : SlotsOf(SlotKind::kModel)) {
    types.push_back(std::static_pointer_cast<const ModelEntry>(slot.entry)->traits.model_type);
  }
  std::sort(types.begin(), types.end());
  types.erase(std::unique(types.begin(), types.end()), types.end());
  return types;
}

std::vector<std::string> Registry::KnownArchitectures() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> known;
  for (const ArchitectureRow& row : index_.architectures) known.emplace_back(row.architecture);
  for (const Declaration& declaration : declared_) known.push_back(declaration.architecture);
  for (const auto& [name, slot] : SlotsOf(SlotKind::kModel)) known.push_back(name);
  std::sort(known.begin(), known.end());
  known.erase(std::unique(known.begin(), known.end()), known.end());
  return known;
}

Status Registry::UnknownArchitecture(std::string_view architecture) const {
  // A library that failed after it had been opened still owns what it registered.
  for (const auto& [name, record] : records_) {
    if (record->state != Record::State::kFailed) continue;
    for (const Registration& registration : record->log) {
      if (registration.name == architecture) return record->failure;
    }
  }
  return Refused(fmt::format(
      "architecture '{}' is unknown{}; fix: correct the name, `tenon models` lists what is served",
      Printable(architecture, kLongestName), DidYouMean(architecture, KnownArchitectures())));
}

Status Registry::CheckServed(const ArchitectureRow& row) const {
  const std::lock_guard lock(mutex_);
  if (row.status == ModelStatus::kRemoved) {
    return Refused(fmt::format(
        "architecture '{}' was served before version {} and is not any more; fix: an older "
        "version, or a plugin (--custom-module-dirs)",
        row.architecture, row.version));
  }
  if (row.status == ModelStatus::kNotBuilt) {
    return Refused(fmt::format(
        "architecture '{}' ({}) is known, but not built: this version has no family '{}'; fix: "
        "`tenon models` lists what is served, a plugin (--custom-module-dirs) may add it",
        row.architecture, NameOf(row.kind), row.provider));
  }
  if (!records_.contains(row.provider)) {
    return Refused(fmt::format(
        "architecture '{}' is known, but this build leaves its family '{}' out; fix: build "
        "with -DTENON_ZOO including it",
        row.architecture, row.provider));
  }
  return {};
}

Status Registry::OpenFor(SlotKind kind, std::string_view name, std::string_view provider) {
  if (SlotsOf(kind).contains(name)) return {};
  const auto it = records_.find(provider);
  return it == records_.end() ? Status() : Open(*it->second);
}

Result<Registry::Found> Registry::Find(std::string_view architecture) {
  const std::lock_guard lock(mutex_);
  if (const Declaration* declaration = DeclarationOf(architecture)) {
    // Even where the slot is filled: one that was declared earlier may hold it.
    const auto record = records_.find(declaration->provider);
    if (record != records_.end()) TN_RETURN_IF_ERROR(Open(*record->second));
    if (auto found = HeldBy<ModelEntry>(architecture)) return std::move(*found);
    return Refused(
        fmt::format("provider '{}' does not register architecture '{}', for which it "
                    "was declared",
                    declaration->provider, architecture));
  }
  if (auto found = HeldBy<ModelEntry>(architecture)) return std::move(*found);
  const ArchitectureRow* row = FindRow(architecture);
  if (row == nullptr) return UnknownArchitecture(architecture);
  TN_RETURN_IF_ERROR(CheckServed(*row));
  TN_RETURN_IF_ERROR(OpenFor(SlotKind::kModel, architecture, row->provider));
  if (auto found = HeldBy<ModelEntry>(architecture)) return std::move(*found);
  return Refused(fmt::format("provider '{}' does not register architecture '{}' of its row",
                             row->provider, architecture));
}

Result<Registry::FoundEntry<VisionEncoderEntry>> Registry::FindVisionEncoder(
    std::string_view architecture) {
  const std::lock_guard lock(mutex_);
  // Only its own slot counts: whoever holds the model's, the encoder may be another's.
  if (const Declaration* declaration = DeclarationOf(architecture)) {
    TN_RETURN_IF_ERROR(OpenFor(SlotKind::kVisionEncoder, architecture, declaration->provider));
  }
  const ArchitectureRow* row = FindRow(architecture);
  if (row != nullptr && CheckServed(*row).ok()) {
    TN_RETURN_IF_ERROR(OpenFor(SlotKind::kVisionEncoder, architecture, row->provider));
  }
  if (auto found = HeldBy<VisionEncoderEntry>(architecture)) return std::move(*found);
  if (row != nullptr) TN_RETURN_IF_ERROR(CheckServed(*row));
  if (row == nullptr && !SlotsOf(SlotKind::kModel).contains(architecture)) {
    return UnknownArchitecture(architecture);
  }
  return Refused(
      fmt::format("architecture '{}' has no vision encoder here; fix: without "
                  "--mm-encoder-only",
                  architecture));
}

bool Registry::DraftsWithOwnModel(std::string_view mode) const {
  return std::any_of(index_.drafts.begin(), index_.drafts.end(),
                     [&](const DraftRow& row) { return row.mode == mode && row.provider.empty(); });
}

Result<Registry::FoundEntry<DraftBuilderEntry>> Registry::FindDraftBuilder(std::string_view mode) {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> known;
  for (const DraftRow& row : index_.drafts) {
    known.emplace_back(row.mode);
    if (row.mode != mode || row.provider.empty() || row.status >= ModelStatus::kNotBuilt) continue;
    TN_RETURN_IF_ERROR(OpenFor(SlotKind::kDraftBuilder, mode, row.provider));
  }
  if (auto found = HeldBy<DraftBuilderEntry>(mode)) return std::move(*found);
  for (const DraftRow& row : index_.drafts) {
    if (row.mode != mode) continue;
    if (row.provider.empty()) {
      return Refused(fmt::format(
          "speculative mode '{}' has no builder: it drafts with the model of another checkpoint",
          mode));
    }
    return Refused(fmt::format(
        "speculative mode '{}' is known, but not built: this version has no provider '{}'", mode,
        row.provider));
  }
  for (const auto& [name, slot] : SlotsOf(SlotKind::kDraftBuilder)) known.push_back(name);
  return Refused(fmt::format("speculative mode '{}' has no draft model; with one: {}{}",
                             Printable(mode, kLongestName), Join(known, ", "),
                             DidYouMean(mode, known)));
}

std::optional<Registry::FoundEntry<ConfigReaderEntry>> Registry::FindConfigReader(
    std::string_view model_type) {
  const std::lock_guard lock(mutex_);
  return HeldBy<ConfigReaderEntry>(model_type);
}

Result<std::vector<Registry::FoundEntry<TargetEntry>>> Registry::FindTargets(
    std::string_view architecture) {
  const std::lock_guard lock(mutex_);
  for (const TargetRow& row : index_.targets) {
    if (row.architecture != architecture) continue;
    const auto it = records_.find(row.provider);
    if (it != records_.end()) TN_RETURN_IF_ERROR(Open(*it->second));
  }
  std::vector<FoundEntry<TargetEntry>> found;
  for (const auto& [name, slot] : SlotsOf(SlotKind::kTarget)) {
    auto entry = std::static_pointer_cast<const TargetEntry>(slot.entry);
    const auto& served = entry->architectures;
    if (std::find(served.begin(), served.end(), architecture) != served.end()) {
      found.push_back({std::move(entry), slot.owner->provider.name});
    }
  }
  return found;
}

// What holds its slot, in the order of the providers' opening or declaration.
template <typename Entry>
std::vector<Registry::FoundEntry<Entry>> Registry::AllHeld() const {
  const std::lock_guard lock(mutex_);
  std::vector<FoundEntry<Entry>> found;
  const Slots& slots = SlotsOf(Entry::kSlot);
  const auto add = [&](const Record* record) {
    for (const Registration& registration : record->log) {
      if (registration.kind != Entry::kSlot) continue;
      const auto slot = slots.find(registration.name);
      if (slot == slots.end() || slot->second.entry != registration.entry) continue;
      found.push_back(
          {std::static_pointer_cast<const Entry>(registration.entry), record->provider.name});
    }
  };
  std::for_each(opened_builtins_.begin(), opened_builtins_.end(), add);
  std::for_each(externals_.begin(), externals_.end(), add);
  return found;
}

std::vector<Registry::Found> Registry::OpenModels() const { return AllHeld<ModelEntry>(); }

std::vector<Registry::FoundEntry<AttentionBackendEntry>> Registry::AttentionBackends() const {
  return AllHeld<AttentionBackendEntry>();
}

std::vector<Registry::FoundEntry<QuantMethodEntry>> Registry::QuantMethods() const {
  return AllHeld<QuantMethodEntry>();
}

Result<std::string> Registry::ArchitectureOfGguf(std::string_view gguf_architecture,
                                                 const GgufMetadata& metadata) {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> known;
  for (auto external = externals_.rbegin(); external != externals_.rend(); ++external) {
    if ((*external)->state != Record::State::kOpen) continue;
    const auto it = (*external)->gguf.find(gguf_architecture);
    if (it != (*external)->gguf.end()) return it->second(metadata);
    for (const auto& [name, identity] : (*external)->gguf) known.push_back(name);
  }
  for (const GgufRow& row : index_.gguf) {
    known.emplace_back(row.gguf_architecture);
    if (row.gguf_architecture != gguf_architecture) continue;
    const auto it = records_.find(row.provider);
    if (it == records_.end()) {
      return Refused(
          fmt::format("GGUF architecture '{}' is known, but this build leaves its family '{}' out",
                      gguf_architecture, row.provider));
    }
    TN_RETURN_IF_ERROR(Open(*it->second));
    const auto identity = it->second->gguf.find(gguf_architecture);
    TN_CHECK(identity != it->second->gguf.end(), "a GGUF row's provider names its architecture");
    return identity->second(metadata);
  }
  const std::vector<std::string> near = NearNames(gguf_architecture, known);
  return Refused(fmt::format(
      "GGUF architecture (general.architecture) '{}' is unknown; {}",
      Printable(gguf_architecture, kLongestName),
      near.empty() ? "known: " + Join(known, ", ") : "did you mean " + Join(near, ", ") + "?"));
}

}  // namespace tenon
