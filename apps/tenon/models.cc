#include <fmt/format.h>

#include <memory>

#include "command.h"
#include "tenon/base/text.h"
#include "tenon/registry/model_list.h"
#include "tenon/registry/plugin_loader.h"
#include "tenon/zoo/zoo.h"

namespace tenon::cli {
namespace {

struct ModelsArguments {
  explicit ModelsArguments(CLI::App& app) : options(app, kModels) {
    app.add_option("NAME", name, "an architecture, a family or a model_type");
    app.add_flag("--all", all, "also those that are known by name and not built");
  }
  TableOptions options;
  std::string name;
  bool all = false;
};

Json JsonOf(const std::vector<ListedModel>& models) {
  Json::Array rows;
  for (const ListedModel& model : models) rows.push_back(ToJson(model));
  Json report;
  report.Set("schema", 1);
  report.Set("models", std::move(rows));
  return report;
}

void PrintTable(const std::vector<ListedModel>& models, bool all) {
  fmt::print("{:36} {:16} {:16} {:10} {}\n", "architecture", "kind", "family", "status", "GGUF");
  int hidden = 0;
  for (const ListedModel& model : models) {
    if (!model.served && !all) {
      ++hidden;
      continue;
    }
    fmt::print("{:36} {:16} {:16} {:10} {}\n", model.architecture, model.kind, model.family,
               model.status, Join(model.gguf, ", "));
  }
  if (hidden > 0) fmt::print("{} more are known by name and not built: --all\n", hidden);
}

// One or a few that were asked for by name.
void PrintDetails(const std::vector<ListedModel>& models) {
  for (const ListedModel& model : models) {
    fmt::print("{}: {}\n  kind {}, family {}, model_type {}{}\n", model.architecture,
               model.served ? "served" : "not served", model.kind, model.family, model.model_type,
               model.version.empty() ? "" : ", since " + model.version);
    if (!model.served) continue;  // why: on stderr
    fmt::print(
        "  needs: a directory with config.json (architectures: [\"{}\"]) and safetensors{}\n",
        model.architecture,
        model.gguf.empty()
            ? ""
            : ", or a GGUF file whose general.architecture is " + Join(model.gguf, " or "));
  }
}

Status Models(const ModelsArguments& arguments) {
  TN_ASSIGN_OR_RETURN(const EngineOptions options, arguments.options.Resolve());
  const std::unique_ptr<Registry> registry = MakeRegistry();
  TN_RETURN_IF_ERROR(OpenPlugins(options.custom_module_dirs, *registry));
  const bool named = !arguments.name.empty();
  std::vector<ListedModel> models;
  if (named) {
    TN_ASSIGN_OR_RETURN(models, ListModels(*registry, arguments.name));
  } else {
    models = ListModels(*registry);
  }
  if (options.json.value) {
    fmt::print("{}\n", JsonOf(models).Dump(2));
  } else if (named) {
    PrintDetails(models);
  } else {
    PrintTable(models, arguments.all);
  }
  return CheckServed(models);
}

}  // namespace

Action AddModels(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("models", "The architectures that are served, and what one needs");
  const auto arguments = std::make_shared<ModelsArguments>(*command);
  return [arguments] { return Models(*arguments); };
}

}  // namespace tenon::cli
