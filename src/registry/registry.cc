#include "tenon/registry/registry.h"

#include <fmt/format.h>

#include <algorithm>

#include "tenon/base/text.h"

namespace tenon {

// A name from a file may be anything.
constexpr size_t kLongestName = 200;

std::string_view NameOf(ModelKind kind) {
  switch (kind) {
    case ModelKind::kCausalLm:
      return "causal lm";
    case ModelKind::kEncoderDecoder:
      return "encoder-decoder";
    case ModelKind::kEncoder:
      return "encoder";
    case ModelKind::kVisionEncoder:
      return "vision encoder";
    case ModelKind::kDraft:
      return "draft";
  }
  return "unknown";
}

Registry::Registry(std::span<const ArchitectureRow> index, std::span<const GgufRow> gguf_index,
                   std::vector<Provider> builtins)
    : index_(index), gguf_index_(gguf_index) {
  for (Provider& provider : builtins) {
    const std::string name = provider.name;  // read before the move
    auto record = std::make_unique<Record>();
    record->provider = std::move(provider);
    records_.emplace(name, std::move(record));
  }
}

Registry::~Registry() = default;

const ArchitectureRow* Registry::FindRow(std::string_view architecture) const {
  for (const ArchitectureRow& row : index_) {
    if (row.architecture == architecture) return &row;
  }
  return nullptr;
}

std::vector<std::string_view> Registry::ArchitecturesOfModelType(
    std::string_view model_type) const {
  std::vector<std::string_view> names;
  for (const ArchitectureRow& row : index_) {
    if (row.model_type == model_type) names.push_back(row.architecture);
  }
  return names;
}

bool Registry::IsBuilt(const ArchitectureRow& row) const {
  const std::lock_guard lock(mutex_);
  return records_.contains(row.provider);
}

Status Registry::Open(Record& record) {
  if (record.state == Record::State::kOpen) return {};
  if (record.state == Record::State::kFailed) return record.failure;
  if (record.state == Record::State::kOpening) {
    return Refused(fmt::format("provider '{}' looks up what it serves itself, while it opens",
                               record.provider.name));
  }
  record.state = Record::State::kOpening;
  Registrar registrar(*this, record);
  const Status status = record.provider.register_models(registrar);
  if (!status.ok()) {
    record.state = Record::State::kFailed;
    record.log.clear();
    record.gguf.clear();
    record.failure = Refused(
        fmt::format("provider '{}' failed to open: {}", record.provider.name, status.message()));
    return record.failure;
  }
  record.state = Record::State::kOpen;
  if (record.provider.builtin) opened_builtins_.push_back(&record);
  Replay(record);
  return {};
}

void Registry::Replay(const Record& record) {
  for (const Registration& registration : record.log) Apply(registration, record);
}

void Registry::Apply(const Registration& registration, const Record& owner) {
  const auto it = slots_.find(registration.slot);
  if (it != slots_.end() && it->second.owner != &owner) {
    const bool keep = owner.provider.builtin;  // a built-in fills empty slots only
    const std::string& holder = it->second.owner->provider.name;
    notes_.push_back(fmt::format("{}: kept {}, displaced {}", registration.slot,
                                 keep ? holder : owner.provider.name,
                                 keep ? owner.provider.name : holder));
    if (keep) return;
  }
  slots_.insert_or_assign(registration.slot, Slot{registration.entry, &owner});
}

Status Registry::UnknownArchitecture(std::string_view architecture) const {
  std::vector<std::string> known;
  for (const ArchitectureRow& row : index_) known.emplace_back(row.architecture);
  for (const auto& [name, slot] : slots_) known.push_back(name);
  const std::vector<std::string> near = NearNames(architecture, known);
  return Refused(fmt::format("architecture '{}' is unknown{}; `tenon models` lists what is served",
                             Printable(architecture, kLongestName),
                             near.empty() ? "" : "; did you mean " + Join(near, ", ") + "?"));
}

Result<Registry::Found> Registry::Find(std::string_view architecture) {
  const std::lock_guard lock(mutex_);
  const ArchitectureRow* row = FindRow(architecture);
  if (row != nullptr && !slots_.contains(architecture)) {
    const auto it = records_.find(row->provider);
    if (it == records_.end()) {
      return Refused(fmt::format(
          "architecture '{}' is known, but this build leaves its family '{}' out; fix: build "
          "with -DTENON_ZOO including it",
          architecture, row->provider));
    }
    TN_RETURN_IF_ERROR(Open(*it->second));
    if (!slots_.contains(architecture)) {
      return Refused(fmt::format("provider '{}' does not register architecture '{}' of its row",
                                 row->provider, architecture));
    }
  }
  const auto slot = slots_.find(architecture);
  if (slot == slots_.end()) return UnknownArchitecture(architecture);
  return Found{slot->second.entry, slot->second.owner->provider.name};
}

Result<std::string> Registry::ArchitectureOfGguf(std::string_view gguf_architecture,
                                                 const GgufMetadata& metadata) {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> known;
  for (auto external = externals_.rbegin(); external != externals_.rend(); ++external) {
    const auto it = (*external)->gguf.find(gguf_architecture);
    if (it != (*external)->gguf.end()) return it->second(metadata);
    for (const auto& [name, identity] : (*external)->gguf) known.push_back(name);
  }
  for (const GgufRow& row : gguf_index_) {
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

Status Registry::AddExternal(Provider provider) {
  const std::lock_guard lock(mutex_);
  provider.builtin = false;
  const std::string name = provider.name;
  auto it = records_.find(name);
  if (it == records_.end()) {
    auto record = std::make_unique<Record>();
    record->provider = std::move(provider);
    it = records_.emplace(name, std::move(record)).first;
  }
  Record* record = it->second.get();
  if (record->provider.builtin) {
    return UsageError(fmt::format("external provider '{}' has the name of a built-in one", name));
  }
  if (std::find(externals_.begin(), externals_.end(), record) != externals_.end()) return {};
  const bool dropped = record->state == Record::State::kOpen;  // by a rebuild
  TN_RETURN_IF_ERROR(Open(*record));
  externals_.push_back(record);
  if (dropped) Replay(*record);
  return {};
}

void Registry::Rebuild(std::span<const std::string> externals) {
  const std::lock_guard lock(mutex_);
  slots_.clear();
  externals_.clear();
  notes_.clear();
  for (const Record* record : opened_builtins_) Replay(*record);
  for (const std::string& name : externals) {
    const auto it = records_.find(name);
    if (it == records_.end() || it->second->provider.builtin) continue;
    if (it->second->state != Record::State::kOpen) continue;
    externals_.push_back(it->second.get());
    Replay(*it->second);
  }
}

int Registry::opened() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(std::count_if(records_.begin(), records_.end(), [](const auto& record) {
    return record.second->state == Record::State::kOpen;
  }));
}

std::vector<std::string> Registry::notes() const {
  const std::lock_guard lock(mutex_);
  return notes_;
}

void Registrar::Add(ModelEntry entry) {
  std::string slot = entry.architecture;
  record_.log.push_back({std::move(slot), std::make_shared<const ModelEntry>(std::move(entry))});
}

void Registrar::Gguf(std::string gguf_architecture,
                     std::function<Result<std::string>(const GgufMetadata&)> identity) {
  record_.gguf.insert_or_assign(std::move(gguf_architecture), std::move(identity));
}

Result<std::shared_ptr<const ModelEntry>> Registrar::Find(std::string_view architecture) {
  TN_ASSIGN_OR_RETURN(Registry::Found found, registry_.Find(architecture));
  return std::move(found.entry);
}

}  // namespace tenon
