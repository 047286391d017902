// Links a library that the loader does not find.
#include "model.h"

int Needed();

namespace {

tenon::Status Register(tenon::Registrar& registrar) {
  AddPlain(registrar, "DependentForCausalLM", Needed() == 1 ? "dependent" : "");
  return {};
}

}  // namespace

TN_PLUGIN(Register);
