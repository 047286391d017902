#include "tenon/registry/plugin_loader.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string_view>
#include <vector>

#include "tenon/base/file.h"
#include "tenon/base/text.h"
#include "tenon/registry/plugin.h"
#include "tenon/registry/plugin_note.h"

namespace tenon {
namespace {

using RegisterFunction = void(Registrar& registrar, Status& status);
constexpr const char* kRegisterSymbol = "tenon_register_plugin";

// " (tenon::Status::...)", or nothing where the text ends in no C++ name.
std::string Demangled(std::string_view text) {
  const size_t at = text.find("_Z");
  if (at == std::string_view::npos) return "";
  const std::string name(text.substr(at, text.find_first_of(" ,:;)", at) - at));
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> plain(
      abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), &std::free);
  return status == 0 ? fmt::format(" ({})", plain.get()) : "";
}

// What the loader said, verbatim, after what it means where we know that.
Status LoaderError(const std::string& path, const std::string& text) {
  constexpr std::string_view kAbsent = ": cannot open shared object file";
  const size_t absent = text.find(kAbsent);
  if (absent != std::string::npos && text.substr(0, absent) != path) {
    return Refused(fmt::format(
        "it needs the library '{}', which the loader does not find ({}); fix: install it, or name "
        "its folder in LD_LIBRARY_PATH or in the plugin's own search path",
        text.substr(0, absent), text));
  }
  if (text.find("undefined symbol") != std::string::npos) {
    return Refused(fmt::format(
        "{}{}; fix: name the library that has it in the LIBS of tenon_add_plugin; a name of "
        "tenon's: build against the headers of this version, and let the program export it "
        "(tenon_enable_plugins)",
        text, Demangled(text)));
  }
  return Refused("the loader says: " + text);
}

Status CheckTag(const std::string& path) {
  TN_ASSIGN_OR_RETURN(const auto file, MappedFile::Open(path));
  TN_ASSIGN_OR_RETURN(const std::string tag, ReadPluginTag(file->bytes()));
  if (tag == PluginTag()) return {};
  return Refused(
      fmt::format("ABI tag '{}' needs '{}'; fix: build it against the headers of this tenon, with "
                  "its compiler options; none of its code was run",
                  Printable(tag), PluginTag()));
}

// All *.so of a folder, or the path itself.
Result<std::vector<std::string>> FilesOf(const std::string& path) {
  if (!IsDirectory(path)) return std::vector<std::string>{path};
  std::vector<std::string> files;
  std::error_code error;
  for (std::filesystem::directory_iterator it(path, error), end; !error && it != end;
       it.increment(error)) {
    if (it->path().extension() == ".so" && !IsDirectory(it->path())) files.push_back(it->path());
  }
  if (error) return IoError(fmt::format("the folder cannot be read: {}", error.message()));
  if (files.empty()) {
    return UsageError("the folder has no plugin (*.so) in it; fix: name the folder that has one");
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

std::string PluginTag() { return TN_PLUGIN_TAG; }

Result<Provider> LoadPlugin(const std::string& path) {
  std::error_code error;
  const std::filesystem::path file = std::filesystem::canonical(path, error);
  if (error == std::errc::no_such_file_or_directory) {
    return NotFound("there is no such file or folder; fix: correct the path");
  }
  if (error) return IoError(fmt::format("the path cannot be followed: {}", error.message()));
  TN_RETURN_IF_ERROR(CheckTag(file));
  // Now: a symbol that is missing shows here, not in the middle of a step. Local: plugins do not
  // see each other's names.
  void* library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return LoaderError(file, ::dlerror());
  const auto function = reinterpret_cast<RegisterFunction*>(::dlsym(library, kRegisterSymbol));
  if (function == nullptr) {
    return Refused(
        fmt::format("it has a tag, but no {}; fix: let its exports include it", kRegisterSymbol));
  }
  return Provider{
      .name = file.string(), .builtin = false, .register_models = [function](Registrar& registrar) {
        Status status;
        function(registrar, status);
        return status;
      }};
}

Status OpenPlugins(std::span<const std::string> paths, Registry& registry) {
  std::vector<Status> problems;
  const auto open = [&](const std::string& file) -> Status {
    TN_ASSIGN_OR_RETURN(Provider provider, LoadPlugin(file), fmt::format("plugin '{}'", file));
    return registry.AddExternal(std::move(provider));
  };
  for (const std::string& path : paths) {
    const Result<std::vector<std::string>> files = FilesOf(path);
    if (!files.ok()) problems.push_back(files.status().WithContext(fmt::format("'{}'", path)));
    if (!files.ok()) continue;
    for (const std::string& file : *files) {
      Status status = open(file);
      if (!status.ok()) problems.push_back(std::move(status));
    }
  }
  if (problems.size() <= 1) return problems.empty() ? Status() : problems[0];
  std::string text = fmt::format("{} problems with plugins:", problems.size());
  for (const Status& problem : problems) text += "\n  " + problem.message();
  return {problems[0].code(), std::move(text)};
}

Status OpenPlugins(const Sourced<std::vector<std::string>>& option, Registry& registry) {
  return OpenPlugins(std::span(option.value), registry)
      .WithContext(fmt::format("custom-module-dirs (set by {})", option.origin.Text()));
}

}  // namespace tenon
