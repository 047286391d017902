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

Json JsonOf(const BackendTable& table, const MachineProfile& machine) {
  const CapabilityList list = CapabilitiesOf(table);
  Json::Array kernels;
  for (size_t i = 0; i < list.rows.size(); ++i) {
    Json kernel;
    for (size_t c = 0; c < list.columns.size(); ++c) kernel.Set(list.columns[c], list.rows[i][c]);
    kernel.Set("here", machine.isa >= table.rows[i].isa);
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
  for (const KernelRow& row : table.rows) {
    if (machine.isa >= row.isa) continue;
    fmt::print("{}/{}: not on this machine, which has {}\n", row.backend, row.kernel,
               NameOf(machine.isa));
  }
}

Status Backends(const BackendsArguments& arguments) {
  TN_ASSIGN_OR_RETURN(const EngineOptions options, arguments.options.Resolve());
  if (options.json.value && arguments.markdown)
    return UsageError("--json and --markdown: one form at a time; fix: leave one out");
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
