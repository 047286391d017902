#include "support.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "tenon/base/env.h"
#include "tenon/base/file.h"

namespace tenon::fuzz {

std::vector<std::string_view> Parts(std::string_view bytes) {
  constexpr std::string_view kLine = "\n=====\n";
  std::vector<std::string_view> parts;
  for (;;) {
    const size_t end = bytes.find(kLine);
    parts.push_back(bytes.substr(0, end));
    if (end == std::string_view::npos) return parts;
    bytes.remove_prefix(end + kLine.size());
  }
}

ScratchFolder::ScratchFolder() {
  path_ = IsDirectory("/dev/shm") ? "/dev/shm" : GetEnv("TMPDIR").value_or("/tmp");
  path_ += "/tenon_fuzz_XXXXXX";
  TN_CHECK(mkdtemp(path_.data()) != nullptr, "a temporary folder");
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string ScratchFolder::Write(std::string_view name, std::string_view bytes) const {
  std::string path = path_ + "/" + std::string(name);
  const Status status = WriteFile(path, bytes);
  TN_CHECK(status.ok(), status.message().c_str());
  return path;
}

void ScratchFolder::Remove(std::string_view name) const {
  ::unlink((path_ + "/" + std::string(name)).c_str());
}

void Read(std::span<const std::byte> bytes) {
  unsigned sum = 0;
  for (const std::byte b : bytes) sum += static_cast<unsigned>(b);
  [[maybe_unused]] const volatile unsigned seen = sum;
}

void Read(std::string_view text) { Read(std::as_bytes(std::span(text.data(), text.size()))); }

void CheckError(const Status& status) {
  constexpr size_t kLongest = 20'000;
  TN_CHECK(!status.ok(), "an error");
  TN_CHECK(!status.message().empty(), "an error says what is wrong");
  TN_CHECK(status.message().size() <= kLongest, "an error is not longer than a screen or two");
  TN_CHECK(status.code() != StatusCode::kInternal, status.message().c_str());
  Read(status.message());
}

}  // namespace tenon::fuzz
