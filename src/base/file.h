// Files: read whole or mapped, written whole or piece by piece. Not for parsing. A MappedFile's
// bytes stay valid for its lifetime; it is immutable and may be read from many threads. A
// FileWriter belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "tenon/base/status.h"

namespace tenon {

Result<std::string> ReadFile(const std::string& path);
// Writes through a temporary name and renames: a failure leaves nothing half-written.
Status WriteFile(const std::string& path, std::string_view data);

// The same for a file that is too large to hold: pieces in order, then Commit. Without a Commit
// that succeeds, `path` is untouched and nothing is left beside it.
class FileWriter {
 public:
  static Result<std::unique_ptr<FileWriter>> Create(const std::string& path);
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  Status Append(std::string_view data);
  Status Commit();
  int64_t size() const { return size_; }

 private:
  FileWriter(const std::string& path, std::string temporary, int fd)
      : path_(path), temporary_(std::move(temporary)), fd_(fd) {}
  std::string path_;
  std::string temporary_;
  int fd_;  // -1 once committed
  int64_t size_ = 0;
};

bool FileExists(const std::string& path);
bool IsDirectory(const std::string& path);
bool IsRegularFile(const std::string& path);

class MappedFile {
 public:
  static Result<std::shared_ptr<const MappedFile>> Open(const std::string& path);
  // Bytes that lie in no file, copied; `path` is what messages call them. The copy ends where they
  // end: a sanitizer sees a read past it, which the rest of a mapped page would hide.
  static std::shared_ptr<const MappedFile> Of(std::string path, std::span<const std::byte> bytes);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  // Hints about parts of bytes(): that one will be read soon, and that one will not be read for a
  // while. Both leave what is read as it is.
  void ReadAhead(std::span<const std::byte> range) const;
  void GiveBack(std::span<const std::byte> range) const;
  const std::string& path() const { return path_; }

 private:
  MappedFile(std::string path, const std::byte* data, size_t size)
      : path_(std::move(path)), data_(data), size_(size) {}
  std::string path_;
  const std::byte* data_;
  size_t size_;
  std::unique_ptr<std::byte[]> copy_;  // null: data_ is mapped
};

}  // namespace tenon
