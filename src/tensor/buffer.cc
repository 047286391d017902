#include "tenon/tensor/buffer.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "tenon/base/text.h"

namespace tenon {

void Buffer::Free::operator()(std::byte* data) const {
  if (mapped > 0) {
    ::munmap(data, static_cast<size_t>(mapped));
  } else {
    std::free(data);
  }
}

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
  constexpr int64_t kWorthMapping = 1 << 20;
  if (bytes < kWorthMapping) {
    TN_ASSIGN_OR_RETURN(Buffer buffer, Allocate(bytes, purpose));
    std::memset(buffer.data(), 0, static_cast<size_t>(bytes));
    return buffer;
  }
  void* data = ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    return DoesNotFit(fmt::format("cannot allocate {} for {}", BytesText(bytes), purpose));
  }
  Buffer buffer;
  buffer.data_ = {static_cast<std::byte*>(data), Free{bytes}};
  buffer.size_ = bytes;
  return buffer;
}

Result<Buffer> Buffer::AllocateForStreams(int64_t bytes, const char* purpose) {
  constexpr int64_t kLargePage = 2 << 20;
  TN_CHECK(bytes >= 0, "sizes are not negative");
  const int64_t kept = RoundUp(std::max<int64_t>(bytes, 1), kLargePage);
  void* mapped = ::mmap(nullptr, static_cast<size_t>(kept + kLargePage), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) {
    return DoesNotFit(fmt::format("cannot allocate {} for {}", BytesText(bytes), purpose));
  }
  // Large pages start at multiples of their size: what lies around them goes back.
  auto* begin = static_cast<std::byte*>(mapped);
  const int64_t before =
      -static_cast<int64_t>(reinterpret_cast<uintptr_t>(begin)) & (kLargePage - 1);
  if (before > 0) ::munmap(begin, static_cast<size_t>(before));
  ::munmap(begin + before + kept, static_cast<size_t>(kLargePage - before));
  ::madvise(begin + before, static_cast<size_t>(kept), MADV_HUGEPAGE);  // a wish: small ones do too
  Buffer buffer;
  buffer.data_ = {begin + before, Free{kept}};
  buffer.size_ = bytes;
  return buffer;
}

}  // namespace tenon
