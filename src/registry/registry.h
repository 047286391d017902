// Registry: what is registered under a name, and by whom. A static index names providers without
// running them; a provider is opened on the first look-up that needs it. Look up only through
// Find…(): a slot read otherwise misses providers that are not open yet. Thread-safe.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/base/status.h"
#include "tenon/registry/model_entry.h"
#include "tenon/registry/static_index.h"
#include "tenon/registry/target.h"

namespace tenon {

class Registrar;

// A unit that registers models: a built-in family or a shared library.
struct Provider {
  std::string name;     // "llama", or the library's path
  bool builtin = true;  // a property of the record, never guessed from the name
  std::function<Status(Registrar&)> register_models;
};

// An architecture that an external provider serves: what one process tells another.
struct Declaration {
  std::string architecture;
  std::string provider;  // the library's path
  friend bool operator==(const Declaration&, const Declaration&) = default;
};

class Registry {
 public:
  Registry(const StaticIndex& index, std::vector<Provider> builtins);
  ~Registry();
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;

  template <typename Entry>
  struct FoundEntry {
    std::shared_ptr<const Entry> entry;  // outlives a rebuild
    std::string provider;
  };
  using Found = FoundEntry<ModelEntry>;
  // Each opens the provider first. Errors (kRefused), each of its own kind: unknown (with near
  // names), known but not built, left out of this build, removed, the provider's own failure with
  // its cause.
  Result<Found> Find(std::string_view architecture);
  Result<FoundEntry<VisionEncoderEntry>> FindVisionEncoder(std::string_view architecture);
  Result<FoundEntry<DraftBuilderEntry>> FindDraftBuilder(std::string_view mode);
  // Whether the mode drafts with another checkpoint's model, which is found as any other.
  bool DraftsWithOwnModel(std::string_view mode) const;
  // Nothing when no provider that is open reads this model_type.
  std::optional<FoundEntry<ConfigReaderEntry>> FindConfigReader(std::string_view model_type);
  // All targets for an architecture, in the order of registration.
  Result<std::vector<FoundEntry<TargetEntry>>> FindTargets(std::string_view architecture);
  // Those that hold their names, in the order of their providers and registrations; of providers
  // that are open.
  std::vector<FoundEntry<AttentionBackendEntry>> AttentionBackends() const;
  // Those that providers brought, likewise.
  std::vector<FoundEntry<QuantMethodEntry>> QuantMethods() const;
  // The Hugging Face architecture of a GGUF file.
  Result<std::string> ArchitectureOfGguf(std::string_view gguf_architecture,
                                         const GgufMetadata& metadata);

  // Rows of the index; opens nothing.
  const ArchitectureRow* FindRow(std::string_view architecture) const;
  const StaticIndex& index() const { return index_; }
  // Architectures of a model_type: the index's and those of the externals that are open.
  std::vector<std::string> ArchitecturesOfModelType(std::string_view model_type) const;
  std::vector<std::string> ModelTypes() const;
  // Does this build serve it, by what the index says? CheckServed: why not.
  bool IsServed(const ArchitectureRow& row) const { return CheckServed(row).ok(); }
  Status CheckServed(const ArchitectureRow& row) const;
  // The models that open providers serve, as they hold their slots; opens nothing.
  std::vector<Found> OpenModels() const;
  // Every architecture that somebody serves or knows, for near names.
  std::vector<std::string> KnownArchitectures() const;

  // A library given by the user: registered at once, wins its slots. All of its registrations or
  // none. The same name again changes nothing, but for one that a rebuild dropped: it comes back.
  // kUsage: the name of a built-in.
  Status AddExternal(Provider provider);
  // Clears the slots and replays: built-ins in the order they were opened, then the named externals
  // in order.
  void Rebuild(std::span<const std::string> externals);

  // What externals serve, and what was declared and is not open yet, in declared order.
  std::vector<Declaration> Export() const;
  // The whole set of declarations: providers that are open already are replayed in this order, the
  // others are loaded when one of their architectures is looked up. The same set again changes
  // nothing. Providers that are no longer named lose their slots and get them back when they are
  // named again.
  void Import(std::vector<Declaration> declarations);
  // How an external that is only declared is loaded: its path -> the provider.
  using Loader = std::function<Result<Provider>(const std::string& name)>;
  void SetLoader(Loader loader);

  // Names that a provider registered, in its order, whether it holds their slots or not.
  std::vector<std::string> RegisteredBy(std::string_view provider, SlotKind kind) const;
  int opened() const;
  // Kept and displaced registrations, in words.
  std::vector<std::string> notes() const;

 private:
  friend class Registrar;
  struct Registration {
    SlotKind kind;
    std::string name;
    std::shared_ptr<const void> entry;  // of the type that belongs to the kind
  };
  using GgufIdentity = std::function<Result<std::string>(const GgufMetadata&)>;
  struct Record {
    Provider provider;
    enum class State { kClosed, kOpening, kOpen, kFailed } state = State::kClosed;
    Status failure;
    std::unique_ptr<Registrar> registrar;  // a library may keep its address
    std::vector<Registration> log;         // the only way to refill a slot later
    std::map<std::string, GgufIdentity, std::less<>> gguf;
  };
  struct Slot {
    std::shared_ptr<const void> entry;
    const Record* owner = nullptr;
  };
  using Slots = std::map<std::string, Slot, std::less<>>;

  Slots& SlotsOf(SlotKind kind) { return slots_[static_cast<size_t>(kind)]; }
  const Slots& SlotsOf(SlotKind kind) const { return slots_[static_cast<size_t>(kind)]; }
  template <typename Entry>
  std::vector<FoundEntry<Entry>> AllHeld() const;
  template <typename Entry>
  std::optional<FoundEntry<Entry>> HeldBy(std::string_view name) const;

  Status Open(Record& record);
  Status RunProvider(Record& record);
  // Opens what the index or a declaration names for a slot that is empty.
  Status OpenFor(SlotKind kind, std::string_view name, std::string_view provider);
  void Replay(const Record& record);
  void ReplayAll();
  void Apply(const Registration& registration, const Record& owner);
  void Accept(Record& record, Registration registration);
  const Declaration* DeclarationOf(std::string_view architecture) const;
  Record& ExternalRecord(const std::string& name);
  Status UnknownArchitecture(std::string_view architecture) const;

  const StaticIndex index_;
  mutable std::recursive_mutex mutex_;  // a provider's function may look another architecture up
  std::map<std::string, std::unique_ptr<Record>, std::less<>> records_;
  std::vector<Record*> opened_builtins_;  // in the order of opening: replay keeps it
  std::vector<Record*> externals_;        // in declared order
  std::vector<Declaration> declared_;     // by Import
  Loader loader_;
  Slots slots_[kSlotKinds];
  std::vector<std::string> notes_;
};

// What a provider's function receives. Registrations take effect together when the function
// succeeds; what comes after it has returned fails the provider.
class Registrar {
 public:
  Registrar(Registry& registry, Registry::Record& record) : registry_(registry), record_(record) {}

  // ModelClass: a Model with `using Config = …` (constructible from (ConfigReader&, Container)), a
  // constructor from (const Scope&, const Config&), and `static NameTable Names(const Config&,
  // Container)`; optionally `static std::vector<std::string> Skippable(const Config&)`.
  template <typename ModelClass>
  void Model(std::string architecture, ModelKind kind, ModelTraits traits) {
    auto entry = EntryOf<ModelEntry, ModelClass>(std::move(architecture));
    if constexpr (requires(const typename ModelClass::Config& c) { ModelClass::Skippable(c); }) {
      entry.skippable = [](const ModelConfig& config) {
        return ModelClass::Skippable(static_cast<const typename ModelClass::Config&>(config));
      };
    }
    entry.kind = kind;
    entry.traits = std::move(traits);
    Add(std::move(entry));
  }
  // A model of another family, under its own name or another one: reuse it by what Find gave.
  void Model(ModelEntry entry) { Add(std::move(entry)); }
  // The vision encoder of an architecture that this provider has registered itself, whether it
  // holds the model's slot or not. EncoderClass: as ModelClass.
  template <typename EncoderClass>
  void VisionEncoder(std::string architecture) {
    Add(EntryOf<VisionEncoderEntry, EncoderClass>(std::move(architecture)));
  }
  // DraftClass: a Model with a constructor from (const Scope&, const ModelConfig& target, const
  // ModelConfig& draft). Several modes may share one class.
  template <typename DraftClass>
  void DraftBuilder(std::string mode) {
    Add(DraftBuilderEntry{
        std::move(mode),
        [](const Scope& scope, const ModelConfig& target, const ModelConfig& draft) {
          return std::unique_ptr<tenon::Model>(std::make_unique<DraftClass>(scope, target, draft));
        }});
  }
  void ConfigReader(ConfigReaderEntry entry);
  void Target(TargetEntry entry);
  // rows: what its kernels declare; each names the backend.
  void AttentionBackend(std::shared_ptr<const tenon::AttentionBackend> backend,
                        std::vector<KernelRow> rows);
  void QuantMethod(QuantMethodEntry entry);
  // Names the Hugging Face architecture for a GGUF file of `gguf_architecture`.
  void Gguf(std::string gguf_architecture,
            std::function<Result<std::string>(const GgufMetadata&)> identity);

  // Reuses another family: the entry of an architecture, whoever serves it.
  Result<std::shared_ptr<const ModelEntry>> Find(std::string_view architecture);

 private:
  friend class Registry;
  template <typename Entry, typename Class>
  static Entry EntryOf(std::string architecture) {
    using Config = typename Class::Config;
    Entry entry;
    entry.architecture = std::move(architecture);
    entry.read_config = [](tenon::ConfigReader& reader,
                           Container container) -> std::shared_ptr<const ModelConfig> {
      return std::make_shared<const Config>(reader, container);
    };
    entry.names = [](const ModelConfig& config, Container container) {
      return Class::Names(static_cast<const Config&>(config), container);
    };
    entry.create = [](const Scope& scope,
                      const ModelConfig& config) -> std::unique_ptr<tenon::Model> {
      return std::make_unique<Class>(scope, static_cast<const Config&>(config));
    };
    return entry;
  }
  void Add(ModelEntry entry);
  void Add(VisionEncoderEntry entry);
  void Add(DraftBuilderEntry entry);
  template <typename Entry>
  void AddAny(Entry entry);

  Registry& registry_;
  Registry::Record& record_;
  Status problem_;  // the first
};

}  // namespace tenon
