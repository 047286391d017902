// The fuzz targets: one function for each parser of foreign bytes. It parses, and walks everything
// that was parsed, so that a read outside the bytes is seen by a sanitizer; what must hold of any
// input is a TN_CHECK. Not tests of results. One thread; state is kept between calls (scratch
// folders, a registry).
#pragma once

#include <string_view>

namespace tenon::fuzz {

// bytes: as long as their allocation, so that a read past them is seen.
#define TN_FUZZ_TARGET(name, function) void function(std::string_view bytes);
#include "targets.inc"
#undef TN_FUZZ_TARGET

}  // namespace tenon::fuzz
