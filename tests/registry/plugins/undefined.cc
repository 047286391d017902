// Calls what nobody has.
#include "model.h"

namespace tenon {
Status NobodyHasThis(Registrar& registrar);
}

TN_PLUGIN(tenon::NobodyHasThis);
