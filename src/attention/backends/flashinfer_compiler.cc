#include "tenon/attention/backends/flashinfer_compiler.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include "tenon/base/env.h"
#include "tenon/base/file.h"

extern char** environ;

namespace tenon::backends {
namespace {

constexpr const char* kCompilers[] = {"c++", "g++", "clang++"};

// What the kernels of the same name are compiled with (src/kernels/CMakeLists.txt).
std::vector<std::string> FlagsOf(Isa isa) {
  switch (isa) {
    case Isa::kReference:
    case Isa::kBaseline:
      return {"-march=x86-64"};
    case Isa::kAvx2:
      return {"-march=haswell"};
    case Isa::kAvx512:
      return {"-march=skylake-avx512", "-mprefer-vector-width=512"};
    case Isa::kAvx512Bf16Vnni:
    case Isa::kAmx:
      return {"-march=cooperlake", "-mavx512vbmi", "-mgfni", "-mprefer-vector-width=512"};
  }
  return {};
}

// FNV-1a.
uint64_t HashOf(std::string_view text) {
  uint64_t hash = 14695981039346656037ull;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  return hash;
}

// All that the program prints. Fails when it cannot be started or does not return 0.
Result<std::string> OutputOf(const std::vector<std::string>& command) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return Unavailable("no pipe to a program's output");
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
  pid_t child = 0;
  const int failed =
      ::posix_spawn(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  std::string output;
  char buffer[4096];
  for (ssize_t n = 0; failed == 0; output.append(buffer, static_cast<size_t>(n))) {
    n = ::read(ends[0], buffer, sizeof buffer);
    if (n < 0 && errno == EINTR)
      n = 0;
    else if (n <= 0)
      break;
  }
  ::close(ends[0]);
  if (failed != 0) {
    return Unavailable(fmt::format("{} cannot be started: {}", command[0], std::strerror(failed)));
  }
  int state = 0;
  while (::waitpid(child, &state, 0) < 0 && errno == EINTR) continue;
  if (WIFEXITED(state) && WEXITSTATUS(state) == 0) return output;
  return Unavailable(fmt::format("{} failed:\n{}", command[0], output.substr(0, 2000)));
}

// The program's path: the name itself where it is one, else looked for on PATH. Empty: none.
std::string FindProgram(const std::string& name) {
  if (name.find('/') != std::string::npos) return ::access(name.c_str(), X_OK) == 0 ? name : "";
  const std::string path = GetEnv("PATH").value_or("");
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find(':', begin), path.size());
    const std::string file = path.substr(begin, end - begin) + "/" + name;
    if (end > begin && IsRegularFile(file) && ::access(file.c_str(), X_OK) == 0) return file;
    begin = end + 1;
  }
  return "";
}

std::string CacheDir() {
  const auto cache = GetEnv("XDG_CACHE_HOME");
  if (cache) return *cache + "/tenon/attention";
  return GetEnv("HOME").value_or("/tmp") + "/.cache/tenon/attention";
}

}  // namespace

KernelCompiler KernelCompiler::Find(Isa isa) {
  const auto named = GetEnv("TENON_JIT_CXX");
  if (named) {
    KernelCompiler compiler(isa, FindProgram(*named), CacheDir());
    if (!compiler.usable()) {
      compiler.description_ =
          fmt::format("TENON_JIT_CXX = '{}' is no compiler that can be run", *named);
    }
    return compiler;
  }
  for (const char* name : kCompilers) {
    KernelCompiler compiler(isa, FindProgram(name), CacheDir());
    if (compiler.usable()) return compiler;
  }
  return {isa, "", CacheDir()};
}

KernelCompiler::KernelCompiler(Isa isa, std::string compiler, std::string cache_dir)
    : isa_(isa),
      compiler_(std::move(compiler)),
      description_("no compiler: neither c++, g++ nor clang++ is on PATH"),
      cache_dir_(std::move(cache_dir)) {
  if (compiler_.empty()) return;
  const auto version = OutputOf({compiler_, "--version"});
  if (!version.ok()) {
    description_ = version.message();
    return;
  }
  version_ = version->substr(0, version->find('\n'));
  description_ = fmt::format("{} ({})", compiler_, version_);
}

std::string KernelCompiler::PathOf(const Unit& unit) const {
  const std::string what = fmt::format("{};{};{}", unit.abi, NameOf(isa_), unit.source);
  return fmt::format("{}/{}-{}-{:016x}.so", cache_dir_, unit.name, NameOf(isa_), HashOf(what));
}

std::string KernelCompiler::KeyOf(const Unit& unit) const {
  std::string key = fmt::format("tenon-kernel;abi={};isa={};source={:016x};cxx=", unit.abi,
                                NameOf(isa_), HashOf(unit.source));
  if (usable()) key += fmt::format("{};version={};", compiler_, version_);
  std::erase_if(key, [](char c) { return c == '"' || c == '\\' || c == '\n'; });
  return key;
}

bool KernelCompiler::Has(const Unit& unit) const {
  const std::string path = PathOf(unit);
  if (!IsRegularFile(path)) return false;
  const auto bytes = ReadFile(path);
  return bytes.ok() && bytes->find(KeyOf(unit)) != std::string::npos;
}

Status KernelCompiler::Compile(const Unit& unit, const std::string& target) const {
  static std::atomic<int> count = 0;
  std::error_code error;
  std::filesystem::create_directories(cache_dir_, error);
  const std::string own = fmt::format("{}.{}.{}", target, ::getpid(), ++count);
  const std::string source = own + ".cc";
  const std::string object = own + ".tmp";
  Status status = WriteFile(
      source,
      unit.source +
          fmt::format("__attribute__((used)) static const char tn_key[] = \"{}\";\n", KeyOf(unit)));
  if (status.ok()) {
    std::vector<std::string> command = {
        compiler_,        "-std=c++17", "-O3", "-w", "-fPIC", "-shared", "-fvisibility=hidden",
        "-fno-math-errno"};
    for (const std::string& flag : FlagsOf(isa_)) command.push_back(flag);
    command.insert(command.end(), {"-ffp-contract=fast", "-o", object, source});
    const auto output = OutputOf(command);
    if (!output.ok()) status = output.status();
  }
  // Whole under its name or not there at all, whoever else compiles the same.
  if (status.ok() && ::rename(object.c_str(), target.c_str()) != 0)
    status = Unavailable(fmt::format("{}: {}", target, std::strerror(errno)));
  ::unlink(source.c_str());
  ::unlink(object.c_str());
  return status;
}

Result<void*> KernelCompiler::Load(const Unit& unit) const {
  const std::string path = PathOf(unit);
  if (!Has(unit)) {
    if (!usable()) {
      return Unavailable(
          fmt::format("kernel {} is not in the cache ({}), and there is nothing to compile it: {}; "
                      "fix: install "
                      "a compiler or name one in TENON_JIT_CXX, or --attn-jit off",
                      unit.name, cache_dir_, description_));
    }
    const Status status = Compile(unit, path);
    if (!status.ok()) {
      return Unavailable(fmt::format("kernel {} cannot be compiled: {}; fix: --attn-jit off",
                                     unit.name, status.message()));
    }
  }
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* function = library == nullptr ? nullptr : ::dlsym(library, unit.function.c_str());
  if (function != nullptr) return function;
  return Unavailable(
      fmt::format("kernel {} cannot be loaded: {}; fix: delete {}", unit.name, ::dlerror(), path));
}

}  // namespace tenon::backends
