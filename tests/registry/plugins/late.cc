// Keeps what it was handed, and registers more when it is called again.
#include "model.h"

namespace {

tenon::Registrar* g_kept = nullptr;

tenon::Status Register(tenon::Registrar& registrar) {
  AddPlain(registrar, "EarlyForCausalLM", "early");
  g_kept = &registrar;
  return {};
}

}  // namespace

TN_PLUGIN(Register);

extern "C" void RegisterLate() { AddPlain(*g_kept, "LateForCausalLM", "late"); }
