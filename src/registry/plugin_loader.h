// Opens plugins: shared libraries that register models, attention backends and more beside the
// built-in ones. Their tag is read from the file first; the code of one with a wrong tag never
// runs. An open plugin stays for the process. What a plugin includes is plugin.h. Thread-safe.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tenon/base/ledger.h"
#include "tenon/base/status.h"
#include "tenon/registry/registry.h"

namespace tenon {

// What this program was built as: a plugin must say the same.
std::string PluginTag();

// Opens the library; its registration runs when a registry opens the provider, whose name is the
// file's absolute path, links resolved: one plugin by two paths is one provider. Errors, each with
// its cause: absent (kNotFound), no plugin (kUsage), another tag, a library it needs is absent, an
// undefined symbol, or another of the loader's own words (kRefused).
Result<Provider> LoadPlugin(const std::string& path);

// Each path is a plugin or a folder, of which all *.so directly in it are taken, by name. Adds them
// to the registry in this order: the last wins. All problems at once; those without are added. A
// plugin that is there already changes nothing.
Status OpenPlugins(std::span<const std::string> paths, Registry& registry);
// The same for --custom-module-dirs; errors say who set it.
Status OpenPlugins(const Sourced<std::vector<std::string>>& option, Registry& registry);

}  // namespace tenon
