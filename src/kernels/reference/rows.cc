#include <cstring>

#include "tenon/kernels/reference/reference.h"
#include "tenon/numeric/decode.h"

namespace tenon::reference {

void Embed(const EmbedKernelArgs& a, int64_t begin, int64_t end) {
  const DecodeRowFn decode = DecoderOf(a.dtype);
  for (int64_t t = begin; t < end; ++t) {
    float* y = a.y + t * a.cols;
    decode(a.table + a.ids[t] * a.row_bytes, a.cols, y);
    if (a.scale != 1.0f) Scale(a.scale, y, y, a.cols);
  }
}

void Gather(const GatherKernelArgs& a, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    std::memcpy(a.y + i * a.width, a.x + a.rows[i] * a.x_stride,
                static_cast<size_t>(a.width) * sizeof(float));
  }
}

}  // namespace tenon::reference
