// Registers a model of its own and one in the place of a built-in one.
#include "model.h"

namespace {

tenon::Status Register(tenon::Registrar& registrar) {
  AddPlain(registrar, "PlainForCausalLM", "plain");
  AddPlain(registrar, "LlamaForCausalLM", "llama");
  return {};
}

}  // namespace

TN_PLUGIN(Register);
