// Rows of any float DType to fp32: the one slow, exact path that loaders, `inspect`, tests and the
// reference kernels share. Not the fast path of a matmul. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tenon/numeric/dtype.h"

namespace tenon {

// Decodes `elements` numbers (whole blocks) at `row`, which may sit at any byte address, into out
// [elements].
using DecodeRowFn = void (*)(const std::byte* row, int64_t elements, float* out);

// Null for types that hold no real numbers (InfoOf(dtype).is_float is false).
DecodeRowFn DecoderOf(DType dtype);

}  // namespace tenon
