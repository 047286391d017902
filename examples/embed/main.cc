// Tenon inside a program: opens a model, says what will run and why, and continues a prompt with
// the likeliest tokens.   embed [--plugin FILE] MODEL COUNT ID...
#include <cstdlib>
#include <iostream>

#include "tenon/engine/model_runner.h"
#include "tenon/engine/sampler.h"
#include "tenon/plan/options.h"
#include "tenon/plan/report.h"
#include "tenon/zoo/zoo.h"

namespace {

tenon::Status Run(const std::string& path, int64_t count, std::vector<int32_t> ids,
                  const std::string& plugin) {
  // The options of the command line, under the same names.
  std::vector<tenon::OptionSetting> settings = {{"compute", "fp32"}};
  if (!plugin.empty()) settings.push_back({"custom-module-dirs", plugin});
  TN_ASSIGN_OR_RETURN(auto options,
                      tenon::EngineOptionTable().Resolve({.command_line = std::move(settings)}));
  // Everything is decided from headers and configuration; no weight is read.
  const auto registry = tenon::MakeRegistry();
  TN_ASSIGN_OR_RETURN(auto plan, tenon::PlanModel(path, std::move(options), *registry));
  std::cerr << tenon::ReportText(*plan);

  // The same plan, with weights, a cache and threads.
  TN_ASSIGN_OR_RETURN(const auto runner, tenon::ModelRunner::Load(std::move(plan)));
  tenon::Sampler greedy(tenon::SamplingOptions{.temperature = 0});
  for (int64_t i = 0; i < count; ++i) {
    TN_RETURN_IF_ERROR(runner->Extend(ids, tenon::WantLogits::kLast));
    TN_ASSIGN_OR_RETURN(const int32_t id, greedy.Sample(runner->logits()));
    ids = {id};  // the cache holds what came before
    std::cout << ids[0] << (i + 1 < count ? ' ' : '\n') << std::flush;
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  std::string plugin;
  if (argc > 2 && std::string(argv[1]) == "--plugin") {
    plugin = argv[2];
    argc -= 2;
    argv += 2;
  }
  if (argc < 4) {
    std::cerr << "usage: embed [--plugin FILE] MODEL COUNT ID...\n";
    return 2;
  }
  std::vector<int32_t> ids;
  for (int i = 3; i < argc; ++i) ids.push_back(std::atoi(argv[i]));
  const tenon::Status status = Run(argv[1], std::atoi(argv[2]), ids, plugin);
  if (!status.ok()) std::cerr << "embed: " << status.message() << '\n';
  return status.ok() ? 0 : 1;
}
