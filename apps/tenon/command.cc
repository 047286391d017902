#include "command.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <iostream>

#include "tenon/base/env.h"
#include "tenon/base/file.h"
#include "tenon/base/log.h"
#include "tenon/base/text.h"
#include "tenon/plan/options.h"
#include "tenon/zoo/zoo.h"

namespace tenon::cli {
namespace {

Result<int64_t> ParseInteger(const std::string& text, std::string_view what) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    return UsageError(fmt::format("{} = '{}', allowed: a whole number", what, text));
  }
  return value;
}

// Variables of scripts and tests, which are no options.
constexpr std::string_view kOtherVariables[] = {"TENON_TEST_", "TENON_MODELS"};

std::vector<std::pair<std::string, std::string>> OptionVariables() {
  auto variables = EnvWithPrefix("TENON_");
  std::erase_if(variables, [](const auto& variable) {
    return std::any_of(std::begin(kOtherVariables), std::end(kOtherVariables),
                       [&](std::string_view other) { return variable.first.starts_with(other); });
  });
  return variables;
}

// Headings of --help.
std::string_view GroupOf(const OptionRow& row) {
  if (row.commands == kAllCommands) return "General options";
  return (row.commands & kExplain) != 0 && row.kind != OptionKind::kFlag ? "Model options"
                                                                         : "Options";
}

// "auto|NATIVE|VANILLA [auto]", "0 .. 1 [1]": what may be given, and the default.
std::string ValueText(const OptionTable& table, const OptionRow& row) {
  std::string text = table.AllowedText(row);
  if (text.empty()) text = row.kind == OptionKind::kPath ? "FILE" : "TEXT";
  if (*row.default_text != '\0') text += std::string(" [") + row.default_text + "]";
  return text;
}

}  // namespace

TableOptions::TableOptions(CLI::App& app, Command command) : command_(command) {
  const OptionTable table = EngineOptionTable();
  for (const OptionRow& row : table.rows()) {
    if ((row.commands & command) == 0) continue;
    const bool is_flag = row.kind == OptionKind::kFlag;
    std::string names = std::string("--") + row.name;
    if (*row.short_name != '\0') names.insert(0, fmt::format("-{},", row.short_name));
    const std::string help = row.help;  // CLI11 wants an lvalue
    CLI::Option* option = is_flag ? app.add_flag(names, help) : app.add_option(names, help);
    option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    option->group(std::string(GroupOf(row)));
    if (!is_flag) option->type_name(ValueText(table, row));
    rows_.push_back({row.name, is_flag, option});
  }
}

Result<EngineOptions> TableOptions::Resolve() const {
  OptionInputs inputs{.command = command_, .environment = OptionVariables()};
  for (const Row& row : rows_) {
    if (row.is_flag && row.option->count() > 0) inputs.command_line.push_back({row.name, "true"});
    if (row.is_flag) continue;
    for (const std::string& value : row.option->results()) {
      inputs.command_line.push_back({row.name, value});
    }
  }
  TN_ASSIGN_OR_RETURN(EngineOptions options, EngineOptionTable().Resolve(inputs));
  SetLogLevel(*ParseLogLevel(options.log.value));
  return options;
}

ModelArguments::ModelArguments(CLI::App& app, Command command) : options(app, command) {
  app.add_option("MODEL", model, "A Hugging Face directory or a .gguf file")->required();
}

Result<std::unique_ptr<PlannedModel>> ModelArguments::Plan(
    const std::function<void(EngineOptions&)>& adjust) const {
  TN_ASSIGN_OR_RETURN(EngineOptions resolved, options.Resolve());
  if (adjust) adjust(resolved);
  const std::unique_ptr<Registry> registry = MakeRegistry();
  return PlanModel(model, std::move(resolved), *registry);
}

Status AnswerJsonLines(const std::function<Result<Json>(const Json&, int64_t)>& answer) {
  int64_t number = 0;
  int64_t failed = 0;
  for (std::string line; std::getline(std::cin, line);) {
    if (Trim(line).empty()) continue;
    const Result<Json> request = ParseJson(line);
    Result<Json> reply = request.ok() ? Result<Json>(Json()) : Result<Json>(request.status());
    if (request.ok() && !request->is_object()) {
      reply = UsageError("a line holds a JSON object, not a " + std::string(request->KindName()));
    } else if (request.ok()) {
      reply = answer(*request, number);
    }
    Json out;
    if (reply.ok()) {
      out = *std::move(reply);
    } else {
      out.Set("error", reply.message());
      ++failed;
    }
    std::cout << out.Dump() << '\n' << std::flush;
    ++number;
  }
  if (failed > 0)
    return InternalError(
        fmt::format("{} of {} lines failed; their answers say why", failed, number));
  return {};
}

Result<std::vector<int32_t>> ParseIds(const std::string& text) {
  std::vector<int32_t> ids;
  for (const std::string_view part : Split(text, ',')) {
    TN_ASSIGN_OR_RETURN(const int64_t id, ParseInteger(std::string(Trim(part)), "token id"));
    if (id < 0 || id > INT32_MAX)
      return UsageError(fmt::format("token id {}, allowed: 0 to the vocabulary's size", id));
    ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

Result<std::vector<int32_t>> IdsOf(const Json& list, std::string_view what) {
  if (!list.is_array())
    return UsageError(
        fmt::format("{} is a {}, allowed: a list of token ids", what, list.KindName()));
  std::vector<int32_t> ids;
  for (const Json& id : list.as_array()) {
    if (!id.is_int() || id.as_int() < 0 || id.as_int() > INT32_MAX) {
      return UsageError(fmt::format("{} holds {}, allowed: token ids from 0", what, id.Dump()));
    }
    ids.push_back(static_cast<int32_t>(id.as_int()));
  }
  return ids;
}

Result<bool> FlagOf(const Json& request, std::string_view name, bool fallback) {
  const Json* value = request.Find(name);
  if (value == nullptr || value->is_null()) return fallback;
  if (!value->is_bool())
    return UsageError(fmt::format("{} = {}, allowed: true, false", name, value->Dump()));
  return value->as_bool();
}

Json JsonIds(std::span<const int32_t> ids) {
  Json::Array list;
  list.reserve(ids.size());
  for (const int32_t id : ids) list.emplace_back(static_cast<int64_t>(id));
  return list;
}

Result<std::string> ReadText(const std::string& path) {
  if (path != "-") return ReadFile(path);
  return std::string(std::istreambuf_iterator<char>(std::cin), {});
}

}  // namespace tenon::cli
