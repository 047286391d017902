#include "model.h"

namespace {

tenon::Status Register(tenon::Registrar& registrar) {
  AddPlain(registrar, "HalfForCausalLM", "half");
  throw 42;
}

}  // namespace

TN_PLUGIN(Register);
