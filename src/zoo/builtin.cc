#include "tenon/zoo/zoo.h"

namespace tenon {

// An explicit list, written by the build (CMakeLists.txt): a registrar object in a static library
// would be dropped by the linker, and a build may leave families out (-DTENON_ZOO).
#define TN_FAMILY(name, function) Status function(Registrar& registrar);
#include "zoo_families.inc"
#undef TN_FAMILY

namespace {

constexpr ArchitectureRow kArchitectures[] = {
#define TN_ARCHITECTURE(architecture, model_type, provider, kind, status, version) \
  {architecture, model_type, provider, ModelKind::kind, ModelStatus::status, version},
#include "tenon/zoo/index.inc"
#undef TN_ARCHITECTURE
};

constexpr ModelTypeRow kModelTypes[] = {
#define TN_MODEL_TYPE(model_type, architecture) {model_type, architecture},
#include "tenon/zoo/index.inc"
#undef TN_MODEL_TYPE
};

constexpr DraftRow kDrafts[] = {
#define TN_DRAFT(mode, provider, status) {mode, provider, ModelStatus::status},
#include "tenon/zoo/index.inc"
#undef TN_DRAFT
};

constexpr GgufRow kGguf[] = {
#define TN_GGUF(gguf_architecture, provider) {gguf_architecture, provider},
#include "tenon/zoo/index.inc"
#undef TN_GGUF
};

constexpr TargetRow kTargets[] = {
#define TN_TARGET(architecture, provider) {architecture, provider},
#include "tenon/zoo/index.inc"
#undef TN_TARGET
};

struct BuiltinRow {
  const char* name;
  Status (*register_models)(Registrar&);
};
constexpr BuiltinRow kBuiltins[] = {
#define TN_FAMILY(name, function) {name, function},
#include "zoo_families.inc"
#undef TN_FAMILY
};

}  // namespace

StaticIndex ZooIndex() {
  return {.architectures = kArchitectures,
          .model_types = kModelTypes,
          .drafts = kDrafts,
          .gguf = kGguf,
          .targets = kTargets};
}

std::unique_ptr<Registry> MakeRegistry() {
  std::vector<Provider> providers;
  for (const BuiltinRow& row : kBuiltins)
    providers.push_back({row.name, /*builtin=*/true, row.register_models});
  return std::make_unique<Registry>(ZooIndex(), std::move(providers));
}

}  // namespace tenon
