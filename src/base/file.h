// Reading files: whole into memory, or mapped. Not for parsing. A MappedFile's bytes stay valid for
// its lifetime; it is immutable and may be read from many threads.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "tenon/base/status.h"

namespace tenon {

Result<std::string> ReadFile(const std::string& path);
// Writes through a temporary name and renames: a failure leaves nothing half-written.
Status WriteFile(const std::string& path, std::string_view data);
bool FileExists(const std::string& path);
bool IsDirectory(const std::string& path);

class MappedFile {
 public:
  static Result<std::shared_ptr<const MappedFile>> Open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

 private:
  MappedFile(std::string path, const std::byte* data, size_t size)
      : path_(std::move(path)), data_(data), size_(size) {}
  std::string path_;
  const std::byte* data_;
  size_t size_;
};

}  // namespace tenon
