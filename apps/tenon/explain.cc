#include <fmt/format.h>

#include <memory>

#include "command.h"
#include "tenon/plan/report.h"

namespace tenon::cli {
namespace {

Status Explain(const ModelArguments& arguments) {
  TN_ASSIGN_OR_RETURN(const auto plan, arguments.Plan());
  fmt::print("{}", plan->options.json.value ? ReportJson(*plan).Dump(2) + "\n" : ReportText(*plan));
  return {};
}

}  // namespace

Action AddExplain(CLI::App& app) {
  CLI::App* command = app.add_subcommand("explain", "What will run and why, from headers alone");
  const auto arguments = std::make_shared<ModelArguments>(*command, kExplain);
  return [arguments] { return Explain(*arguments); };
}

}  // namespace tenon::cli
