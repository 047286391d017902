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

// The first argument that no command knows, if there is one.
const char* UnknownOption(const CLI::App& command, int argc, char** argv) {
  for (int i = 2; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.size() < 2 || argument[0] != '-') continue;
    if (command.get_option_no_throw(argument.substr(0, argument.find('='))) == nullptr) {
      return argv[i];
    }
  }
  return nullptr;
}

// What CLI11 says, in our exit code, and for a mistyped option the nearest ones.
int ReportUsage(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
  const auto chosen = app.get_subcommands();
  if (dynamic_cast<const CLI::ExtrasError*>(&error) == nullptr || chosen.empty()) {
    return app.exit(error) == 0 ? 0 : 2;  // 0: help or version was asked for
  }
  const CLI::App& command = *chosen.front();
  const char* option = UnknownOption(command, argc, argv);
  if (option == nullptr) return app.exit(error) == 0 ? 0 : 2;
  std::vector<std::string> names;
  for (const CLI::Option* known : command.get_options()) {
    if (!known->get_lnames().empty()) names.push_back("--" + known->get_lnames().front());
  }
  const std::vector<std::string> near = tenon::NearNames(option, names);
  fmt::print(stderr, "tenon {0}: unknown option '{1}'{2}; fix: see `tenon {0} --help`\n",
             command.get_name(), tenon::Printable(option),
             near.empty() ? "" : ", nearest: " + tenon::Join(near, ", "));
  return 2;
}

int UnknownCommand(const CLI::App& app, const std::string& name) {
  std::vector<std::string> commands;
  for (const CLI::App* command : app.get_subcommands({})) commands.push_back(command->get_name());
  fmt::print(stderr, "tenon: no command '{}'; allowed: {}\n", tenon::Printable(name),
             tenon::Join(commands, ", "));
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
        tenon::cli::AddTokenize, tenon::cli::AddRender, tenon::cli::AddInspect,
        tenon::cli::AddBench, tenon::cli::AddBackends}) {
    Action action = add(app);
    actions.emplace_back(app.get_subcommands({}).back(), std::move(action));
  }
  if (argc == 1) {
    fmt::print(stderr, "{}", app.help());
    return 2;
  }
  // CLI11 would only say that a command is missing.
  const std::string first = argv[1];
  const auto is_named = [&](const CLI::App* command) { return command->get_name() == first; };
  if (first.starts_with('-') && app.get_option_no_throw(first) == nullptr) {
    fmt::print(stderr, "tenon: no option '{}' before a command; allowed: --help, --version\n",
               tenon::Printable(first));
    return 2;
  }
  if (!first.starts_with('-') && app.get_subcommands(is_named).empty()) {
    return UnknownCommand(app, first);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return ReportUsage(app, error, argc, argv);
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
