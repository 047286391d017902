// The built-in families behind one function: a registry over the static index with every provider
// that this build contains. Not for look-ups (registry.h). Thread-safe.
#pragma once

#include <memory>

#include "tenon/registry/registry.h"

namespace tenon {

StaticIndex ZooIndex();
std::unique_ptr<Registry> MakeRegistry();

}  // namespace tenon
