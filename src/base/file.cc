#include "tenon/base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

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
  TN_ASSIGN_OR_RETURN(const auto writer, FileWriter::Create(path));
  TN_RETURN_IF_ERROR(writer->Append(data));
  return writer->Commit();
}

Result<std::unique_ptr<FileWriter>> FileWriter::Create(const std::string& path) {
  std::string temporary = path + ".partial";
  const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return SystemError(temporary, "cannot create");
  return std::unique_ptr<FileWriter>(new FileWriter(path, std::move(temporary), fd));
}

FileWriter::~FileWriter() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_.c_str());
}

Status FileWriter::Append(std::string_view data) {
  TN_CHECK(fd_ >= 0, "the file is not committed yet");
  while (!data.empty()) {
    const ssize_t n = ::write(fd_, data.data(), data.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return SystemError(temporary_, "cannot write");
    data.remove_prefix(static_cast<size_t>(n));
    size_ += n;
  }
  return {};
}

Status FileWriter::Commit() {
  TN_CHECK(fd_ >= 0, "the file is committed once");
  const int fd = std::exchange(fd_, -1);
  // Network file systems report a full disk only here.
  Status status = ::close(fd) == 0 ? Status() : SystemError(temporary_, "cannot write");
  if (status.ok() && ::rename(temporary_.c_str(), path_.c_str()) != 0) {
    status = SystemError(path_, "cannot rename into place");
  }
  if (!status.ok()) ::unlink(temporary_.c_str());
  return status;
}

bool FileExists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

bool IsDirectory(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored);
}

bool IsRegularFile(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored);
}

namespace {

void Advise(std::span<const std::byte> range, int advice, bool whole_pages) {
  const auto page = static_cast<int64_t>(::sysconf(_SC_PAGESIZE));
  const auto into_page = static_cast<int64_t>(reinterpret_cast<uintptr_t>(range.data())) % page;
  // From the start of the range's first page.
  const int64_t end = into_page + static_cast<int64_t>(range.size());
  const int64_t from = whole_pages ? (into_page + page - 1) / page * page : 0;
  const int64_t to = (whole_pages ? end : end + page - 1) / page * page;
  if (from >= to) return;
  auto* first = const_cast<std::byte*>(range.data()) - into_page + from;
  ::madvise(first, static_cast<size_t>(to - from), advice);
}

}  // namespace

// Pages of a copy are in no file: given back, they would be lost.
void MappedFile::ReadAhead(std::span<const std::byte> range) const {
  if (copy_ == nullptr) Advise(range, MADV_WILLNEED, false);
}
void MappedFile::GiveBack(std::span<const std::byte> range) const {
  if (copy_ == nullptr) Advise(range, MADV_DONTNEED, true);
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

std::shared_ptr<const MappedFile> MappedFile::Of(std::string path,
                                                 std::span<const std::byte> bytes) {
  auto copy = std::make_unique<std::byte[]>(bytes.size());
  if (!bytes.empty()) std::memcpy(copy.get(), bytes.data(), bytes.size());
  const std::shared_ptr<MappedFile> file(new MappedFile(std::move(path), copy.get(), bytes.size()));
  file->copy_ = std::move(copy);
  return file;
}

MappedFile::~MappedFile() {
  if (size_ > 0 && copy_ == nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace tenon
