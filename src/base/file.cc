#include "tenon/base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

namespace tenon {
namespace {

Status SystemError(const std::string& path, const char* what) {
  const std::string text = path + ": " + what + ": " + std::strerror(errno);
  return errno == ENOENT ? NotFound(text) : IoError(text);
}

// Closes on every path out.
struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

}  // namespace

Result<std::string> ReadFile(const std::string& path) {
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.fd < 0) return SystemError(path, "cannot open");
  std::string data;
  char buffer[1 << 16];
  for (;;) {
    const ssize_t n = ::read(file.fd, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return SystemError(path, "cannot read");
    if (n == 0) return data;
    data.append(buffer, static_cast<size_t>(n));
  }
}

Status WriteFile(const std::string& path, std::string_view data) {
  const std::string temporary = path + ".partial";
  {
    const Descriptor file{
        ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)};
    if (file.fd < 0) return SystemError(temporary, "cannot create");
    while (!data.empty()) {
      const ssize_t n = ::write(file.fd, data.data(), data.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) {
        Status error = SystemError(temporary, "cannot write");
        ::unlink(temporary.c_str());
        return error;
      }
      data.remove_prefix(static_cast<size_t>(n));
    }
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    Status error = SystemError(path, "cannot rename into place");
    ::unlink(temporary.c_str());
    return error;
  }
  return {};
}

bool FileExists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

bool IsDirectory(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored);
}

Result<std::shared_ptr<const MappedFile>> MappedFile::Open(const std::string& path) {
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.fd < 0) return SystemError(path, "cannot open");
  struct stat info {};
  if (::fstat(file.fd, &info) != 0) return SystemError(path, "cannot stat");
  if (!S_ISREG(info.st_mode)) return IoError(path + ": not a regular file");
  const size_t size = static_cast<size_t>(info.st_size);
  const std::byte* data = nullptr;
  if (size > 0) {
    void* mapped = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd, 0);
    if (mapped == MAP_FAILED) return SystemError(path, "cannot map");
    data = static_cast<const std::byte*>(mapped);
  }
  return std::shared_ptr<const MappedFile>(new MappedFile(path, data, size));
}

MappedFile::~MappedFile() {
  if (size_ > 0) ::munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace tenon
