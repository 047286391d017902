// `fuzz_replay TARGET PATH...`: runs every file (of every folder) once through a target, without a
// fuzzer: what fuzzing has found stays a test of any compiler and sanitizer.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "targets.h"
#include "tenon/base/file.h"

namespace {

using Run = void (*)(std::string_view bytes);

Run FindTarget(std::string_view wanted) {
#define TN_FUZZ_TARGET(name, function) \
  if (wanted == #name) return tenon::fuzz::function;
#include "targets.inc"
#undef TN_FUZZ_TARGET
  return nullptr;
}

void AddFiles(const std::string& path, std::vector<std::string>& files) {
  if (!tenon::IsDirectory(path)) {
    files.push_back(path);
    return;
  }
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    files.push_back(entry.path().string());
  }
}

// False when the file cannot be read. What the target finds ends the process.
bool Replay(Run target, const std::string& path) {
  const auto bytes = tenon::ReadFile(path);
  if (!bytes.ok()) {
    std::fprintf(stderr, "%s\n", bytes.message().c_str());
    return false;
  }
  std::printf("%s\n", path.c_str());
  std::fflush(stdout);  // the last line names the file that a crash belongs to
  // Exactly as many bytes as there are, for the sanitizers.
  const auto copy = std::make_unique<char[]>(bytes->size());
  std::memcpy(copy.get(), bytes->data(), bytes->size());
  target({copy.get(), bytes->size()});
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  const Run target = argc < 3 ? nullptr : FindTarget(argv[1]);
  if (target == nullptr) {
    std::fprintf(stderr, "usage: fuzz_replay TARGET PATH...; targets: fuzz/targets.inc\n");
    return 2;
  }
  std::vector<std::string> files;
  for (int i = 2; i < argc; ++i) AddFiles(argv[i], files);
  std::sort(files.begin(), files.end());
  if (files.empty()) {
    std::fprintf(stderr, "no files to run\n");
    return 1;
  }
  const bool read = std::all_of(files.begin(), files.end(),
                                [&](const std::string& path) { return Replay(target, path); });
  return read ? 0 : 1;
}
