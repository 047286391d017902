// Reads a plugin's tag from the bytes of its file: the loader runs a library's initialisers when it
// opens it, so that a wrong one must be known before. A small part of ELF, every offset checked.
// Not a loader (plugin_loader.h). Pure; thread-safe.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "tenon/base/status.h"

namespace tenon {

// The text of the note that TN_PLUGIN writes. Errors (kUsage), each of its own: no ELF file, one
// for another kind of machine, no shared library, cut off, none of our notes.
Result<std::string> ReadPluginTag(std::span<const std::byte> file);

}  // namespace tenon
