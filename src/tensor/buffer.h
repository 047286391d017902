// Buffer: owned, 64-byte aligned memory for weights, caches and step scratch. Move-only;
// thread-compatible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "tenon/base/status.h"

namespace tenon {

class Buffer {
 public:
  static constexpr int64_t kAlignment = 64;

  Buffer() = default;
  // Uninitialised memory. kDoesNotFit, naming the size and the purpose, when the system refuses.
  static Result<Buffer> Allocate(int64_t bytes, const char* purpose);
  // The same, zeroed. Large ones cost nothing until they are touched.
  static Result<Buffer> AllocateZeroed(int64_t bytes, const char* purpose);
  // The same in pages of 2 MiB where the system has them: for what is streamed through again and
  // again, which else waits for page tables.
  static Result<Buffer> AllocateForStreams(int64_t bytes, const char* purpose);

  std::byte* data() const { return data_.get(); }
  int64_t size() const { return size_; }
  std::span<std::byte> bytes() const { return {data(), static_cast<size_t>(size_)}; }

 private:
  struct Free {
    Free() : mapped(0) {}
    explicit Free(int64_t bytes) : mapped(bytes) {}
    int64_t mapped;  // bytes to unmap; 0: from the heap
    void operator()(std::byte* data) const;
  };
  std::unique_ptr<std::byte, Free> data_;
  int64_t size_ = 0;
};

// The next multiple of `unit`.
constexpr int64_t CeilDiv(int64_t n, int64_t unit) { return (n + unit - 1) / unit; }
constexpr int64_t RoundUp(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

}  // namespace tenon
