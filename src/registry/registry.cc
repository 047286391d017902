#include "tenon/registry/registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

namespace tenon {

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

std::string_view NameOf(SlotKind kind) {
  switch (kind) {
    case SlotKind::kModel:
      return "architecture";
    case SlotKind::kVisionEncoder:
      return "vision encoder";
    case SlotKind::kDraftBuilder:
      return "draft builder";
    case SlotKind::kConfigReader:
      return "config reader";
    case SlotKind::kTarget:
      return "target";
    case SlotKind::kQuantMethod:
      return "quantisation method";
    case SlotKind::kAttentionBackend:
      return "attention backend";
  }
  return "unknown";
}

std::string_view NameOf(ModelStatus status) {
  switch (status) {
    case ModelStatus::kStable:
      return "stable";
    case ModelStatus::kBeta:
      return "beta";
    case ModelStatus::kExperimental:
      return "experimental";
    case ModelStatus::kNotBuilt:
      return "not built";
    case ModelStatus::kRemoved:
      return "removed";
  }
  return "unknown";
}

Registry::Registry(const StaticIndex& index, std::vector<Provider> builtins) : index_(index) {
  for (Provider& provider : builtins) {
    const std::string name = provider.name;  // read before the move
    auto record = std::make_unique<Record>();
    record->provider = std::move(provider);
    records_.emplace(name, std::move(record));
  }
}

Registry::~Registry() = default;

Status Registry::RunProvider(Record& record) {
  if (!record.provider.register_models) {  // an external that was only declared
    if (!loader_) return Refused("nothing here loads libraries");
    TN_ASSIGN_OR_RETURN(Provider loaded, loader_(record.provider.name));
    record.provider.register_models = std::move(loaded.register_models);
  }
  record.registrar = std::make_unique<Registrar>(*this, record);
  try {
    TN_RETURN_IF_ERROR(record.provider.register_models(*record.registrar));
  } catch (const std::exception& exception) {
    return Refused(fmt::format("its registration threw: {}", exception.what()));
  } catch (...) {
    return Refused("its registration threw something that is no std::exception");
  }
  TN_RETURN_IF_ERROR(record.registrar->problem_);
  if (!record.provider.builtin && record.log.empty() && record.gguf.empty()) {
    return Refused("it registers nothing");
  }
  return {};
}

Status Registry::Open(Record& record) {
  if (record.state == Record::State::kOpen) return {};
  if (record.state == Record::State::kFailed) return record.failure;
  if (record.state == Record::State::kOpening) {
    return Refused(fmt::format("provider '{}' looks up what it serves itself, while it opens",
                               record.provider.name));
  }
  record.state = Record::State::kOpening;
  const Status status = RunProvider(record);
  if (!status.ok()) {
    record.state = Record::State::kFailed;
    record.log.clear();
    record.gguf.clear();
    record.failure = Refused(
        fmt::format("provider '{}' failed to open: {}", record.provider.name, status.message()));
    return record.failure;
  }
  record.state = Record::State::kOpen;
  if (record.provider.builtin) {
    opened_builtins_.push_back(&record);
    Replay(record);
  } else if (std::find(externals_.begin(), externals_.end(), &record) != externals_.end()) {
    ReplayAll();  // those that were declared after it still win
  } else {
    externals_.push_back(&record);
    Replay(record);
  }
  return {};
}

void Registry::Accept(Record& record, Registration registration) {
  const std::lock_guard lock(mutex_);
  if (record.state == Record::State::kOpening) {
    record.log.push_back(std::move(registration));
    return;
  }
  if (record.state == Record::State::kFailed) return;
  record.state = Record::State::kFailed;
  record.failure = Refused(
      fmt::format("provider '{}' registered {} '{}' after it had been opened; fix: register "
                  "everything before its function returns",
                  record.provider.name, NameOf(registration.kind), registration.name));
  ReplayAll();
}

void Registry::Replay(const Record& record) {
  if (record.state != Record::State::kOpen) return;
  for (const Registration& registration : record.log) Apply(registration, record);
}

void Registry::ReplayAll() {
  for (Slots& slots : slots_) slots.clear();
  notes_.clear();
  for (const Record* record : opened_builtins_) Replay(*record);
  for (const Record* record : externals_) Replay(*record);
}

void Registry::Apply(const Registration& registration, const Record& owner) {
  const bool builtin = owner.provider.builtin;
  if (builtin && registration.kind == SlotKind::kModel &&
      DeclarationOf(registration.name) != nullptr) {
    return;  // stays empty until the declared provider is opened
  }
  Slots& slots = SlotsOf(registration.kind);
  const auto it = slots.find(registration.name);
  if (it != slots.end() && it->second.owner != &owner) {
    const bool keep = builtin;  // a built-in fills empty slots only
    const std::string& holder = it->second.owner->provider.name;
    const std::string what =
        registration.kind == SlotKind::kModel
            ? registration.name
            : fmt::format("{} {}", NameOf(registration.kind), registration.name);
    notes_.push_back(fmt::format("{}: kept {}, displaced {}", what,
                                 keep ? holder : owner.provider.name,
                                 keep ? owner.provider.name : holder));
    if (keep) return;
  }
  slots.insert_or_assign(registration.name, Slot{registration.entry, &owner});
}

Registry::Record& Registry::ExternalRecord(const std::string& name) {
  auto it = records_.find(name);
  if (it == records_.end()) {
    auto record = std::make_unique<Record>();
    record->provider.name = name;
    record->provider.builtin = false;
    it = records_.emplace(name, std::move(record)).first;
  }
  return *it->second;
}

Status Registry::AddExternal(Provider provider) {
  const std::lock_guard lock(mutex_);
  Record& record = ExternalRecord(provider.name);
  if (record.provider.builtin) {
    return UsageError(
        fmt::format("external provider '{}' has the name of a built-in one", provider.name));
  }
  if (!record.provider.register_models) {
    record.provider.register_models = std::move(provider.register_models);
  }
  const bool dropped = record.state == Record::State::kOpen &&
                       std::find(externals_.begin(), externals_.end(), &record) == externals_.end();
  TN_RETURN_IF_ERROR(Open(record));
  if (!dropped) return {};
  externals_.push_back(&record);
  Replay(record);
  return {};
}

void Registry::Rebuild(std::span<const std::string> externals) {
  const std::lock_guard lock(mutex_);
  externals_.clear();
  std::erase_if(declared_, [&](const Declaration& declaration) {
    return std::find(externals.begin(), externals.end(), declaration.provider) == externals.end();
  });
  for (const std::string& name : externals) {
    const auto it = records_.find(name);
    if (it == records_.end() || it->second->provider.builtin) continue;
    Record* record = it->second.get();
    if (std::find(externals_.begin(), externals_.end(), record) == externals_.end()) {
      externals_.push_back(record);
    }
  }
  ReplayAll();
}

const Declaration* Registry::DeclarationOf(std::string_view architecture) const {
  const Declaration* last = nullptr;  // of several the last wins
  for (const Declaration& declaration : declared_) {
    if (declaration.architecture == architecture) last = &declaration;
  }
  return last;
}

void Registry::Import(std::vector<Declaration> declarations) {
  const std::lock_guard lock(mutex_);
  std::erase_if(declarations, [&](const Declaration& declaration) {
    return ExternalRecord(declaration.provider).provider.builtin;  // a name of ours is no library
  });
  if (declarations == declared_) return;
  declared_ = std::move(declarations);
  externals_.clear();
  for (const Declaration& declaration : declared_) {
    Record& record = ExternalRecord(declaration.provider);
    if (std::find(externals_.begin(), externals_.end(), &record) == externals_.end()) {
      externals_.push_back(&record);
    }
  }
  ReplayAll();
}

std::vector<Declaration> Registry::Export() const {
  const std::lock_guard lock(mutex_);
  std::vector<Declaration> declarations;
  const Slots& models = SlotsOf(SlotKind::kModel);
  for (const Record* record : externals_) {
    const std::string& name = record->provider.name;
    for (const Registration& registration : record->log) {
      const auto slot = models.find(registration.name);
      if (registration.kind != SlotKind::kModel || slot == models.end()) continue;
      if (slot->second.owner == record) declarations.push_back({registration.name, name});
    }
    for (const Declaration& declaration : declared_) {
      if (declaration.provider == name && !models.contains(declaration.architecture)) {
        declarations.push_back(declaration);
      }
    }
  }
  return declarations;
}

void Registry::SetLoader(Loader loader) {
  const std::lock_guard lock(mutex_);
  loader_ = std::move(loader);
}

std::vector<std::string> Registry::RegisteredBy(std::string_view provider, SlotKind kind) const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  const auto it = records_.find(provider);
  if (it == records_.end()) return names;
  for (const Registration& registration : it->second->log) {
    if (registration.kind == kind) names.push_back(registration.name);
  }
  return names;
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

// --- Registrar

template <typename Entry>
void Registrar::AddAny(Entry entry) {
  std::string slot = entry.slot();
  registry_.Accept(
      record_, {Entry::kSlot, std::move(slot), std::make_shared<const Entry>(std::move(entry))});
}

void Registrar::Add(ModelEntry entry) { AddAny(std::move(entry)); }
void Registrar::Add(DraftBuilderEntry entry) { AddAny(std::move(entry)); }
void Registrar::ConfigReader(ConfigReaderEntry entry) { AddAny(std::move(entry)); }
void Registrar::Target(TargetEntry entry) { AddAny(std::move(entry)); }

void Registrar::QuantMethod(QuantMethodEntry entry) {
  if ((entry.name.empty() || !entry.read) && problem_.ok()) {
    problem_ = Refused(fmt::format(
        "it registers a quantisation method '{}' without {}; fix: a name, and what reads settings",
        entry.name, entry.name.empty() ? "a name" : "a reader"));
  }
  AddAny(std::move(entry));
}

void Registrar::AttentionBackend(std::shared_ptr<const tenon::AttentionBackend> backend,
                                 std::vector<KernelRow> rows) {
  const std::string_view name = backend == nullptr ? "" : backend->name();
  const bool named = !name.empty() && !EqualsIgnoreCase(name, "auto");
  const bool own = std::all_of(rows.begin(), rows.end(),
                               [&](const KernelRow& row) { return row.backend == name; });
  if ((!named || rows.empty() || !own) && problem_.ok()) {
    problem_ = Refused(fmt::format(
        "it registers an attention backend '{}' with {} rows; fix: a name, and at least one row, "
        "each of which has it",
        name, rows.size()));
  }
  AddAny(AttentionBackendEntry{ToLowerAscii(name), std::move(backend), std::move(rows)});
}

void Registrar::Add(VisionEncoderEntry entry) {
  // By the provider's own record: one that lost the model's slot still brings its encoder.
  const bool has_model =
      std::any_of(record_.log.begin(), record_.log.end(), [&](const auto& registration) {
        return registration.kind == SlotKind::kModel && registration.name == entry.architecture;
      });
  if (!has_model && problem_.ok()) {
    problem_ = Refused(fmt::format(
        "it registers a vision encoder for '{}', for which it has registered no model; fix: "
        "register the model first",
        entry.architecture));
  }
  AddAny(std::move(entry));
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
