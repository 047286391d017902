#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "command.h"
#include "tenon/plan/report.h"
#include "tenon/zoo/zoo.h"

namespace tenon::cli {
namespace {

struct ExplainOptions {
  ModelOptions model;
  bool json = false;
};

Status Explain(const ExplainOptions& options) {
  TN_ASSIGN_OR_RETURN(const PlanOptions plan_options, options.model.Resolve());
  const std::unique_ptr<Registry> registry = MakeRegistry();
  TN_ASSIGN_OR_RETURN(const auto plan, PlanModel(options.model.model(), plan_options, *registry));
  fmt::print("{}", options.json ? ReportJson(*plan).Dump(2) + "\n" : ReportText(*plan));
  return {};
}

}  // namespace

Action AddExplain(CLI::App& app) {
  auto options = std::make_shared<ExplainOptions>();
  CLI::App* command = app.add_subcommand("explain", "What will run and why, from headers alone");
  options->model.AddTo(*command);
  command->add_flag("--json", options->json, "The report as JSON, alone on stdout");
  return [options] { return Explain(*options); };
}

Action AddModels(CLI::App& app) {
  auto json = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand("models", "The architectures that are served");
  command->add_flag("--json", *json, "As JSON");
  return [json]() -> Status {
    const std::unique_ptr<Registry> registry = MakeRegistry();
    Json::Array rows;
    for (const ArchitectureRow& row : registry->index()) {
      if (!*json) {
        fmt::print("{:32} {:16} {}\n", row.architecture, NameOf(row.kind), row.model_type);
        continue;
      }
      Json entry;
      entry.Set("architecture", row.architecture);
      entry.Set("model_type", row.model_type);
      entry.Set("kind", NameOf(row.kind));
      entry.Set("family", row.provider);
      entry.Set("since", row.since);
      rows.push_back(std::move(entry));
    }
    if (*json) {
      Json report;
      report.Set("schema", 1);
      report.Set("models", std::move(rows));
      fmt::print("{}\n", report.Dump(2));
    }
    return {};
  };
}

}  // namespace tenon::cli
