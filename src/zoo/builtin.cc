#include "tenon/zoo/zoo.h"

namespace tenon {

Status RegisterBert(Registrar& registrar);
Status RegisterDeepseekV2(Registrar& registrar);
Status RegisterLfm2(Registrar& registrar);
Status RegisterLlama(Registrar& registrar);
Status RegisterMamba2(Registrar& registrar);
Status RegisterMixtral(Registrar& registrar);
Status RegisterT5(Registrar& registrar);

namespace {

constexpr ArchitectureRow kIndex[] = {
#define TN_ARCHITECTURE(architecture, model_type, provider, kind, since) \
  {architecture, model_type, provider, ModelKind::kind, since},
#include "tenon/zoo/index.inc"
#undef TN_ARCHITECTURE
};

constexpr GgufRow kGgufIndex[] = {
#define TN_GGUF(gguf_architecture, provider) {gguf_architecture, provider},
#include "tenon/zoo/index.inc"
#undef TN_GGUF
};

// An explicit list: a registrar object in a static library would be dropped by the linker.
struct BuiltinRow {
  const char* name;
  Status (*register_models)(Registrar&);
};
constexpr BuiltinRow kBuiltins[] = {
    {"bert", RegisterBert},   {"deepseek_v2", RegisterDeepseekV2}, {"lfm2", RegisterLfm2},
    {"llama", RegisterLlama}, {"mamba2", RegisterMamba2},          {"mixtral", RegisterMixtral},
    {"t5", RegisterT5},
};

}  // namespace

std::unique_ptr<Registry> MakeRegistry() {
  std::vector<Provider> providers;
  for (const BuiltinRow& row : kBuiltins)
    providers.push_back({row.name, /*builtin=*/true, row.register_models});
  return std::make_unique<Registry>(kIndex, kGgufIndex, std::move(providers));
}

}  // namespace tenon
