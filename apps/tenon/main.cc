#include <fmt/format.h>

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

int UnknownCommand(const CLI::App& app, const std::string& name) {
  std::vector<std::string> commands;
  for (const CLI::App* command : app.get_subcommands({})) commands.push_back(command->get_name());
  fmt::print(stderr, "tenon: no command '{}'; allowed: {}\n", name, tenon::Join(commands, ", "));
  return 2;
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
  if (argc > 1 && argv[1][0] != '-' && app.get_subcommand_no_throw(argv[1]) == nullptr) {
    return UnknownCommand(app, argv[1]);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return ReportUsage(app, error);
  }
  for (const auto& [command, action] : actions) {
    if (!command->parsed()) continue;
    const tenon::Status status = action();
    if (!status.ok()) fmt::print(stderr, "tenon {}: {}\n", command->get_name(), status.message());
    return tenon::ExitCodeOf(status.code());
  }
  return 2;
}
