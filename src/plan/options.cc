#include "tenon/plan/options.h"

#include "tenon/attention/capability.h"
#include "tenon/ops/kernel_choice.h"

namespace tenon {

OptionTable EngineOptionTable() {
  const Result<const KernelTable*> kernels = KernelsFor(Isa::kReference);
  TN_CHECK(kernels.ok(), "the reference kernels are always there");
  const BackendTable table = BuiltinBackends(**kernels);
  OptionChoices choices;
  for (const auto& backend : table.backends) {
    choices.attention_backends.emplace_back(backend->name());
  }
  for (const BackendTable::Alias& alias : table.aliases) {
    choices.attention_backends.emplace_back(alias.name);
  }
  return OptionTable(std::move(choices));
}

}  // namespace tenon
