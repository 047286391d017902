#include "tenon/registry/model_list.h"

#include <fmt/format.h>

#include <algorithm>

#include "tenon/base/text.h"

namespace tenon {
namespace {

std::vector<std::string> GgufNamesOf(const Registry& registry, std::string_view provider) {
  std::vector<std::string> names;
  for (const GgufRow& row : registry.index().gguf) {
    if (row.provider == provider) names.emplace_back(row.gguf_architecture);
  }
  return names;
}

ListedModel FromRow(const Registry& registry, const ArchitectureRow& row) {
  ListedModel model;
  model.architecture = row.architecture;
  model.model_type = row.model_type;
  model.family = row.provider;
  model.kind = NameOf(row.kind);
  model.status = NameOf(row.status);
  model.version = row.version;
  const Status served = registry.CheckServed(row);
  model.served = served.ok();
  if (!served.ok()) {
    model.why_not = served.message();
    if (row.status < ModelStatus::kNotBuilt) model.status = "left out";
  } else {
    model.gguf = GgufNamesOf(registry, row.provider);
  }
  return model;
}

bool Matches(const ListedModel& model, const std::string& name) {
  return EqualsIgnoreCase(model.architecture, name) || EqualsIgnoreCase(model.family, name) ||
         EqualsIgnoreCase(model.model_type, name);
}

std::string YesNo(bool yes) { return yes ? "yes" : ""; }

// A model_type beside the usual one.
bool HasOtherType(const Registry& registry, std::string_view architecture, std::string_view name) {
  const auto rows = registry.index().model_types;
  return std::any_of(rows.begin(), rows.end(), [&](const ModelTypeRow& row) {
    return row.architecture == architecture && EqualsIgnoreCase(row.model_type, name);
  });
}

}  // namespace

std::vector<ListedModel> ListModels(const Registry& registry) {
  std::vector<ListedModel> models;
  for (const ArchitectureRow& row : registry.index().architectures) {
    models.push_back(FromRow(registry, row));
  }
  for (const Declaration& external : registry.Export()) {
    auto it = std::find_if(models.begin(), models.end(), [&](const ListedModel& model) {
      return model.architecture == external.architecture;
    });
    if (it == models.end()) {
      it = models.insert(it, ListedModel{});
      it->architecture = external.architecture;
    }
    it->family = external.provider;
    it->status = "external";
    it->version.clear();
    it->why_not.clear();
    it->served = true;
    it->gguf.clear();
    for (const Registry::Found& open : registry.OpenModels()) {
      if (open.entry->architecture != external.architecture) continue;
      it->kind = NameOf(open.entry->kind);
      it->model_type = open.entry->traits.model_type;
    }
  }
  return models;
}

Result<std::vector<ListedModel>> ListModels(const Registry& registry, const std::string& name) {
  std::vector<ListedModel> found;
  std::vector<std::string> known;
  for (ListedModel& model : ListModels(registry)) {
    known.push_back(model.architecture);
    known.push_back(model.family);
    known.push_back(model.model_type);
    if (Matches(model, name) || HasOtherType(registry, model.architecture, name)) {
      found.push_back(std::move(model));
    }
  }
  if (found.empty()) {
    for (const ModelTypeRow& row : registry.index().model_types) {
      known.emplace_back(row.model_type);
    }
    std::sort(known.begin(), known.end());
    known.erase(std::unique(known.begin(), known.end()), known.end());
    const std::vector<std::string> near = NearNames(name, known);
    return Refused(fmt::format("'{}' is no architecture, family or model_type that is known{}",
                               Printable(name, 200),
                               near.empty() ? "; fix: `tenon models --all` lists them"
                                            : "; did you mean " + Join(near, ", ") + "?"));
  }
  return found;
}

Status CheckServed(const std::vector<ListedModel>& models) {
  std::vector<std::string> reasons;
  for (const ListedModel& model : models) {
    if (model.served) return {};
    reasons.push_back(model.why_not);
  }
  return Refused(Join(reasons, "\n"));
}

Json ToJson(const ListedModel& model) {
  Json row;
  row.Set("architecture", model.architecture);
  row.Set("model_type", model.model_type);
  row.Set("kind", model.kind);
  row.Set("family", model.family);
  row.Set("status", model.status);
  row.Set("served", model.served);
  row.Set("since", model.version);
  row.Set("gguf", Json::Array(model.gguf.begin(), model.gguf.end()));
  if (!model.served) row.Set("why_not", model.why_not);
  return row;
}

std::string ModelMatrix(Registry& registry) {
  std::string text =
      "| Architecture | Family | Kind | model_type | Since | Status | GGUF names | Base alone | "
      "Defaults of its own | Targets |\n|---|---|---|---|---|---|---|---|---|---|\n";
  std::string not_built;
  for (const ListedModel& model : ListModels(registry)) {
    if (!model.served) {
      not_built += (not_built.empty() ? "" : ", ") + model.architecture;
      continue;
    }
    const auto found = registry.Find(model.architecture);
    TN_CHECK(found.ok(), "a served row has its registration");
    const ModelTraits& traits = found->entry->traits;
    std::vector<std::string> types = {model.model_type};
    for (const ModelTypeRow& row : registry.index().model_types) {
      if (row.architecture == model.architecture) types.emplace_back(row.model_type);
    }
    std::vector<std::string> targets;
    if (const auto entries = registry.FindTargets(model.architecture); entries.ok()) {
      for (const auto& target : *entries) targets.push_back(target.entry->name);
    }
    text += fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |\n", model.architecture,
                        model.family, model.kind, Join(types, ", "), model.version, model.status,
                        traits.gguf_keys.empty() ? "" : Join(model.gguf, ", "),
                        YesNo(!traits.base_prefix.empty()), YesNo(bool(traits.defaults)),
                        Join(targets, ", "));
  }
  return text + "\nKnown by name, not built: " + not_built + ".\n";
}

}  // namespace tenon
