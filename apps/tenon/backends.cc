#include <fmt/format.h>

#include <memory>

#include "command.h"
#include "tenon/attention/capability.h"
#include "tenon/base/machine_profile.h"
#include "tenon/ops/kernel_choice.h"
#include "tenon/registry/plugin_loader.h"
#include "tenon/zoo/zoo.h"

namespace tenon::cli {
namespace {

struct BackendsArguments {
  explicit BackendsArguments(CLI::App& app) : options(app, kBackends) {
    app.add_flag("--markdown", markdown, "as a table of Markdown");
  }
  TableOptions options;
  bool markdown = false;
};

// Whether the machine has what each kernel needs, in the order of the table's rows.
std::vector<bool> Here(const BackendTable& table, const MachineProfile& machine) {
  std::vector<bool> here;
  for (const KernelRow& row : table.rows) here.push_back(machine.isa >= row.isa);
  return here;
}

Json JsonOf(const BackendTable& table, const MachineProfile& machine) {
  const CapabilityList list = CapabilitiesOf(table);
  const std::vector<bool> here = Here(table, machine);
  Json::Array kernels;
  for (size_t i = 0; i < list.rows.size(); ++i) {
    Json kernel;
    for (size_t c = 0; c < list.columns.size(); ++c) kernel.Set(list.columns[c], list.rows[i][c]);
    kernel.Set("here", bool{here[i]});
    kernels.push_back(std::move(kernel));
  }
  Json::Array backends;
  for (const auto& backend : table.backends) {
    Json entry;
    entry.Set("name", std::string(backend->name()));
    Json::Array aliases;
    for (const BackendTable::Alias& alias : table.aliases) {
      if (alias.backend == backend->name()) aliases.emplace_back(std::string(alias.name));
    }
    entry.Set("aliases", std::move(aliases));
    entry.Set("kv_layout", std::string(NameOf(backend->layout())));
    backends.push_back(std::move(entry));
  }
  Json report;
  report.Set("schema", 1);
  report.Set("backends", std::move(backends));
  report.Set("kernels", std::move(kernels));
  return report;
}

void PrintText(const BackendTable& table, const MachineProfile& machine) {
  fmt::print("{}", CapabilityMatrix(table));
  fmt::print("\nauto: the first backend, in this order, with a kernel for each phase of a layer\n");
  for (const BackendTable::Alias& alias : table.aliases)
    fmt::print("{}: another name of {}\n", alias.name, alias.backend);
  const std::vector<bool> here = Here(table, machine);
  for (size_t i = 0; i < here.size(); ++i) {
    if (here[i]) continue;
    fmt::print("{}/{}: not on this machine, which has {}\n", table.rows[i].backend,
               table.rows[i].kernel, NameOf(machine.isa));
  }
}

Status Backends(const BackendsArguments& arguments) {
  TN_ASSIGN_OR_RETURN(const EngineOptions options, arguments.options.Resolve());
  const std::unique_ptr<Registry> registry = MakeRegistry();
  TN_RETURN_IF_ERROR(OpenPlugins(options.custom_module_dirs, *registry));
  const MachineProfile machine = DetectMachine();
  BackendTable table = BuiltinBackends(KernelsFor(machine.isa));
  // Held until all is printed: the rows' names are theirs.
  const auto plugins = registry->AttentionBackends();
  for (const auto& [entry, provider] : plugins) table.Add(entry->backend, entry->rows);
  if (options.json.value) {
    fmt::print("{}\n", JsonOf(table, machine).Dump(2));
  } else if (arguments.markdown) {
    fmt::print("{}", CapabilityMarkdown(table));
  } else {
    PrintText(table, machine);
  }
  return {};
}

}  // namespace

Action AddBackends(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("backends", "The attention backends and what their kernels can do");
  const auto arguments = std::make_shared<BackendsArguments>(*command);
  return [arguments] { return Backends(*arguments); };
}

}  // namespace tenon::cli
