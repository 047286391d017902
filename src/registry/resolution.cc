#include "tenon/registry/resolution.h"

#include <fmt/format.h>

#include <algorithm>

#include "tenon/base/text.h"

namespace tenon {
namespace {

// "unknown (nearest: …)": of a model_type that no row has.
std::string UnknownModelType(const Identity& identity, const Registry& registry) {
  std::vector<std::string> types;
  for (const ArchitectureRow& row : registry.index()) types.emplace_back(row.model_type);
  const std::vector<std::string> near = NearNames(identity.model_type, types);
  return near.empty() ? "unknown" : "unknown (nearest: " + Join(near, ", ") + ")";
}

Status NoArchitecture(const Identity& identity, const Registry& registry) {
  return Refused(fmt::format(
      "{} names no architectures, and model_type '{}' is {}; fix: add \"architectures\": [\"…\"]",
      identity.source, identity.model_type, UnknownModelType(identity, registry)));
}

// Neither key is known: near names for both. Without a row only an open external could serve it.
Status WithUnknownModelType(Status failure, const Identity& identity,
                            const std::string& architecture, const Registry& registry) {
  const std::string& type = identity.model_type;
  if (registry.FindRow(architecture) != nullptr || identity.architectures.empty() || type.empty() ||
      !registry.ArchitecturesOfModelType(type).empty()) {
    return failure;
  }
  return Refused(fmt::format("{}; model_type '{}' is {} too", failure.message(), type,
                             UnknownModelType(identity, registry)));
}

// The architecture that decides, before the registry is asked.
Result<std::string> ChooseArchitecture(const Identity& identity, const Registry& registry,
                                       std::vector<ResolutionStep>& trace) {
  if (!identity.architectures.empty()) {
    trace.push_back({"architecture", identity.architectures[0],
                     "first of architectures in " + identity.source});
    for (size_t i = 1; i < identity.architectures.size(); ++i) {
      trace.push_back(
          {"architecture", identity.architectures[i], "ignored: only the first decides"});
    }
    return identity.architectures[0];
  }
  if (identity.model_type.empty()) {
    return Refused(identity.source +
                   " has neither architectures nor model_type; fix: add \"architectures\"");
  }
  const std::vector<std::string_view> candidates =
      registry.ArchitecturesOfModelType(identity.model_type);
  if (candidates.empty()) return NoArchitecture(identity, registry);
  if (candidates.size() > 1) {
    return Refused(
        fmt::format("{} names no architectures, and model_type '{}' fits several: {}; fix: add "
                    "\"architectures\" with one of them",
                    identity.source, identity.model_type, Join(candidates, ", ")));
  }
  trace.push_back({"architecture", std::string(candidates[0]),
                   fmt::format("architectures is absent; model_type '{}'", identity.model_type)});
  return std::string(candidates[0]);
}

// model_type must not contradict the architecture.
Status CheckModelType(const Identity& identity, const Resolution& resolution,
                      const Registry& registry, std::vector<ResolutionStep>& trace) {
  const std::string& type = identity.model_type;
  if (type.empty() || type == resolution.entry->traits.model_type) return {};
  const std::vector<std::string_view> others = registry.ArchitecturesOfModelType(type);
  const bool same_family =
      others.empty() || std::any_of(others.begin(), others.end(), [&](std::string_view name) {
        const ArchitectureRow* row = registry.FindRow(name);
        const ArchitectureRow* own = registry.FindRow(resolution.architecture);
        return own != nullptr && row->provider == own->provider;
      });
  if (!same_family) {
    return Refused(
        fmt::format("architectures says '{}' but model_type says '{}', which belongs to {}; fix: "
                    "make them agree",
                    resolution.architecture, type, Join(others, ", ")));
  }
  trace.push_back({"model_type", type,
                   others.empty() ? "unknown; the architecture decides"
                                  : "another name within the same family"});
  return {};
}

}  // namespace

Result<Resolution> Resolve(const Identity& identity, Registry& registry) {
  Resolution resolution;
  TN_ASSIGN_OR_RETURN(resolution.architecture,
                      ChooseArchitecture(identity, registry, resolution.trace));
  Result<Registry::Found> found = registry.Find(resolution.architecture);
  if (!found.ok()) {
    return WithUnknownModelType(found.status(), identity, resolution.architecture, registry);
  }
  resolution.entry = std::move(found->entry);
  resolution.provider = std::move(found->provider);
  TN_RETURN_IF_ERROR(CheckModelType(identity, resolution, registry, resolution.trace));
  resolution.trace.push_back(
      {"provider", resolution.provider, std::string(NameOf(resolution.entry->kind))});
  return resolution;
}

Result<Identity> IdentityOf(const Checkpoint& checkpoint, Registry& registry) {
  Identity identity;
  if (const GgufMetadata* metadata = checkpoint.gguf()) {
    identity.source = "GGUF metadata";
    TN_ASSIGN_OR_RETURN(const std::string_view gguf, metadata->String("general.architecture"));
    TN_ASSIGN_OR_RETURN(std::string architecture, registry.ArchitectureOfGguf(gguf, *metadata));
    identity.architectures = {std::move(architecture)};
    return identity;
  }
  identity.source = "config.json";
  const Json* config = checkpoint.config();
  if (config == nullptr || !config->is_object()) {
    return Refused(checkpoint.path() +
                   ": no config.json; fix: a Hugging Face directory with config.json, or a .gguf");
  }
  if (const Json* names = config->Find("architectures"); names != nullptr && names->is_array()) {
    for (const Json& name : names->as_array()) {
      if (!name.is_string()) {
        return Refused("config.json: architectures holds " + name.Dump() + ", allowed: strings");
      }
      identity.architectures.push_back(name.as_string());
    }
  } else if (names != nullptr && !names->is_null()) {
    return Refused(
        fmt::format("config.json: architectures = {}, allowed: a list of strings", names->Dump()));
  }
  if (const Json* type = config->Find("model_type"); type != nullptr && type->is_string()) {
    identity.model_type = type->as_string();
  }
  return identity;
}

}  // namespace tenon
