#include "tenon/tensor/buffer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "tenon/base/text.h"

namespace tenon {

void Buffer::Free::operator()(std::byte* data) const { std::free(data); }

Result<Buffer> Buffer::Allocate(int64_t bytes, const char* purpose) {
  TN_CHECK(bytes >= 0, "sizes are not negative");
  Buffer buffer;
  const int64_t rounded = RoundUp(std::max<int64_t>(bytes, 1), kAlignment);
  void* data = std::aligned_alloc(static_cast<size_t>(kAlignment), static_cast<size_t>(rounded));
  if (data == nullptr) {
    return DoesNotFit(fmt::format("cannot allocate {} for {}", BytesText(bytes), purpose));
  }
  buffer.data_.reset(static_cast<std::byte*>(data));
  buffer.size_ = bytes;
  return buffer;
}

Result<Buffer> Buffer::AllocateZeroed(int64_t bytes, const char* purpose) {
  TN_ASSIGN_OR_RETURN(Buffer buffer, Allocate(bytes, purpose));
  std::memset(buffer.data(), 0, static_cast<size_t>(bytes));
  return buffer;
}

}  // namespace tenon
