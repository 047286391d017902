#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <utility>
#include <vector>

#include "command.h"
#include "tenon/base/text.h"

namespace {

constexpr const char* kFooter =
    "MODEL is a Hugging Face directory or a .gguf file. `tenon COMMAND --help` lists a command's "
    "options.\n"
    "Exit codes: 0 fine, 1 runtime failure, 2 bad usage or options, 3 model refused, 4 does not "
    "fit.";

// What CLI11 says, in our exit code.
int ReportUsage(const CLI::App& app, const CLI::ParseError& error) {
  const int code = app.exit(error);
  return code == 0 ? 0 : 2;  // 0: help or version was asked for
}

std::vector<std::string> CommandNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  return names;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("tenon: run language models on a CPU, and see beforehand what will run and why",
               "tenon");
  app.set_version_flag("--version", std::string("tenon ") + TN_VERSION);
  app.require_subcommand(1);
  app.footer(kFooter);
  using tenon::cli::Action;
  std::vector<std::pair<const CLI::App*, Action>> actions;
  for (const tenon::cli::AddCommand add :
       {tenon::cli::AddRun, tenon::cli::AddExplain, tenon::cli::AddModels, tenon::cli::AddLogits,
        tenon::cli::AddTokenize, tenon::cli::AddRender, tenon::cli::AddInspect}) {
    Action action = add(app);
    actions.emplace_back(app.get_subcommands({}).back(), std::move(action));
  }
  // CLI11 would only say that a command is missing.
  const std::vector<std::string> names = CommandNames(app);
  if (argc > 1 && argv[1][0] == '-' && app.get_option_no_throw(argv[1]) == nullptr) {
    fmt::print(stderr, "tenon: no option '{}' before a command; allowed: --help, --version\n",
               tenon::Printable(argv[1]));
    return 2;
  }
  if (argc > 1 && argv[1][0] != '-' &&
      std::find(names.begin(), names.end(), argv[1]) == names.end()) {
    fmt::print(stderr, "tenon: no command '{}'; allowed: {}\n", tenon::Printable(argv[1]),
               tenon::Join(names, ", "));
    return 2;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return ReportUsage(app, error);
  }
  for (const auto& [command, action] : actions) {
    if (!command->parsed()) continue;
    const tenon::Status status = action();
    if (!status.ok()) {
      fmt::print(stderr, "tenon {}: {}\n", command->get_name(), tenon::Printable(status.message()));
    }
    return tenon::ExitCodeOf(status.code());
  }
  return 2;
}
