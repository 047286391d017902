#include "model.h"

namespace {

tenon::Status Register(tenon::Registrar& /*registrar*/) { return {}; }

}  // namespace

TN_PLUGIN(Register);
