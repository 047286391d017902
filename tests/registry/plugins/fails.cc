#include "model.h"

namespace {

tenon::Status Register(tenon::Registrar& /*registrar*/) {
  return tenon::Refused("the licence of the weights is not there");
}

}  // namespace

TN_PLUGIN(Register);
