#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "command.h"
#include "tenon/plan/report.h"
#include "tenon/zoo/zoo.h"

namespace tenon::cli {
namespace {

Status Explain(const ModelArguments& arguments) {
  TN_ASSIGN_OR_RETURN(const auto plan, arguments.Plan());
  fmt::print("{}", plan->options.json.value ? ReportJson(*plan).Dump(2) + "\n" : ReportText(*plan));
  return {};
}

Status Models(bool as_json) {
  const std::unique_ptr<Registry> registry = MakeRegistry();
  Json::Array rows;
  for (const ArchitectureRow& row : registry->index()) {
    if (!as_json) {
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
  if (!as_json) return {};
  Json report;
  report.Set("schema", 1);
  report.Set("models", std::move(rows));
  fmt::print("{}\n", report.Dump(2));
  return {};
}

}  // namespace

Action AddExplain(CLI::App& app) {
  CLI::App* command = app.add_subcommand("explain", "What will run and why, from headers alone");
  const auto arguments = std::make_shared<ModelArguments>(*command, kExplain);
  return [arguments] { return Explain(*arguments); };
}

Action AddModels(CLI::App& app) {
  CLI::App* command = app.add_subcommand("models", "The architectures that are served");
  const auto arguments = std::make_shared<TableOptions>(*command, kModels);
  return [arguments]() -> Status {
    TN_ASSIGN_OR_RETURN(const EngineOptions options, arguments->Resolve());
    return Models(options.json.value);
  };
}

}  // namespace tenon::cli
