// Registry: architecture name -> ModelEntry. A static index names providers without running them; a
// provider is opened on the first look-up that needs it. Built-ins fill empty slots only; externals
// win in either order; each provider keeps its registrations in order, so that the slots can be
// rebuilt. Look up only through Find. Thread-safe.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/base/status.h"
#include "tenon/registry/model_entry.h"

namespace tenon {

// One row of the static index (zoo/index.inc). Plain data: reading it runs no provider.
struct ArchitectureRow {
  std::string_view architecture;  // as config.json spells it
  std::string_view model_type;    // config.json's usual one
  std::string_view provider;      // "llama": src/zoo/llama.cc
  ModelKind kind;
  std::string_view since;  // version of ours that first served it
};
// GGUF's general.architecture -> the provider whose function names the Hugging Face architecture.
struct GgufRow {
  std::string_view gguf_architecture;
  std::string_view provider;
};

class Registrar;

// A unit that registers models: a built-in family or a shared library.
struct Provider {
  std::string name;     // "llama", or the library's path
  bool builtin = true;  // a property of the record, never guessed from the name
  std::function<Status(Registrar&)> register_models;
};

class Registry {
 public:
  Registry(std::span<const ArchitectureRow> index, std::span<const GgufRow> gguf_index,
           std::vector<Provider> builtins);
  ~Registry();
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;

  struct Found {
    std::shared_ptr<const ModelEntry> entry;  // outlives a rebuild
    std::string provider;
  };
  // Opens the provider first. Errors (kRefused): unknown (with near names), known but not built,
  // the provider's own failure with its cause.
  Result<Found> Find(std::string_view architecture);
  // The Hugging Face architecture of a GGUF file.
  Result<std::string> ArchitectureOfGguf(std::string_view gguf_architecture,
                                         const GgufMetadata& metadata);

  // Rows of the index only; opens nothing.
  const ArchitectureRow* FindRow(std::string_view architecture) const;
  std::vector<std::string_view> ArchitecturesOfModelType(std::string_view model_type) const;
  std::span<const ArchitectureRow> index() const { return index_; }
  bool IsBuilt(const ArchitectureRow& row) const;

  // A library given by the user: registered at once, wins its slots. All of its registrations or
  // none. The same name again changes nothing, but for one that a rebuild dropped: it comes back.
  // kUsage: the name of a built-in.
  Status AddExternal(Provider provider);
  // Clears the slots and replays: built-ins in the order they were opened, then the named externals
  // in order.
  void Rebuild(std::span<const std::string> externals);

  int opened() const;
  // Kept and displaced registrations, in words.
  std::vector<std::string> notes() const;

 private:
  friend class Registrar;
  struct Registration {
    std::string slot;
    std::shared_ptr<const ModelEntry> entry;
  };
  using GgufIdentity = std::function<Result<std::string>(const GgufMetadata&)>;
  struct Record {
    Provider provider;
    enum class State { kClosed, kOpening, kOpen, kFailed } state = State::kClosed;
    Status failure;
    std::vector<Registration> log;  // the only way to refill a slot later
    std::map<std::string, GgufIdentity, std::less<>> gguf;
  };
  struct Slot {
    std::shared_ptr<const ModelEntry> entry;
    const Record* owner = nullptr;
  };

  Status Open(Record& record);
  void Replay(const Record& record);
  void Apply(const Registration& registration, const Record& owner);
  Status UnknownArchitecture(std::string_view architecture) const;

  const std::span<const ArchitectureRow> index_;
  const std::span<const GgufRow> gguf_index_;
  mutable std::recursive_mutex mutex_;  // a provider's function may look another architecture up
  std::map<std::string, std::unique_ptr<Record>, std::less<>> records_;
  std::vector<Record*> opened_builtins_;  // in the order of opening: replay keeps it
  std::vector<Record*> externals_;        // in declared order
  std::map<std::string, Slot, std::less<>> slots_;
  std::vector<std::string> notes_;
};

// What a provider's function receives. Registrations take effect together when the function
// succeeds.
class Registrar {
 public:
  Registrar(Registry& registry, Registry::Record& record) : registry_(registry), record_(record) {}

  // ModelClass: a Model with `using Config = …` (constructible from (ConfigReader&, Container)), a
  // constructor from (const Scope&, const Config&), and `static NameTable Names(const Config&,
  // Container)`.
  template <typename ModelClass>
  void Model(std::string architecture, ModelKind kind, ModelTraits traits) {
    using Config = typename ModelClass::Config;
    ModelEntry entry;
    entry.architecture = std::move(architecture);
    entry.kind = kind;
    entry.traits = std::move(traits);
    entry.read_config = [](ConfigReader& reader,
                           Container container) -> std::shared_ptr<const ModelConfig> {
      return std::make_shared<const Config>(reader, container);
    };
    entry.names = [](const ModelConfig& config, Container container) {
      return ModelClass::Names(static_cast<const Config&>(config), container);
    };
    entry.create = [](const Scope& scope,
                      const ModelConfig& config) -> std::unique_ptr<tenon::Model> {
      return std::make_unique<ModelClass>(scope, static_cast<const Config&>(config));
    };
    Add(std::move(entry));
  }
  // Names the Hugging Face architecture for a GGUF file of `gguf_architecture`.
  void Gguf(std::string gguf_architecture,
            std::function<Result<std::string>(const GgufMetadata&)> identity);

  // Reuses another family: the entry of an architecture, whoever serves it.
  Result<std::shared_ptr<const ModelEntry>> Find(std::string_view architecture);

 private:
  void Add(ModelEntry entry);
  Registry& registry_;
  Registry::Record& record_;
};

}  // namespace tenon
