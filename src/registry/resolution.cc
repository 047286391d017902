#include "tenon/registry/resolution.h"

#include <fmt/format.h>

#include <algorithm>

#include "tenon/base/text.h"

namespace tenon {
namespace {

// "unknown (nearest: …)": of a model_type that no row has.
std::string UnknownModelType(const Identity& identity, const Registry& registry) {
  const std::vector<std::string> near = NearNames(identity.model_type, registry.ModelTypes());
  return near.empty() ? "unknown" : "unknown (nearest: " + Join(near, ", ") + ")";
}

Status NoArchitecture(const Identity& identity, const Registry& registry) {
  return Refused(fmt::format(
      "{} names no architectures, and model_type '{}' is {}; fix: add \"architectures\": [\"…\"]",
      identity.source, identity.model_type, UnknownModelType(identity, registry)));
}

// Neither key is known: near names for both. Without a row only an open external could serve it.
Status WithUnknownModelType(Status failure, const Identity& identity, const Registry& registry) {
  const std::string& type = identity.model_type;
  if (identity.architectures.empty() || registry.FindRow(identity.architectures[0]) != nullptr ||
      type.empty() || !registry.ArchitecturesOfModelType(type).empty()) {
    return failure;
  }
  return Refused(fmt::format("{}; model_type '{}' is {} too", failure.message(), type,
                             UnknownModelType(identity, registry)));
}

// Of several architectures of one model_type those that are served.
std::vector<std::string> ServedOf(std::vector<std::string> names, const Registry& registry) {
  std::vector<std::string> served;
  for (const std::string& name : names) {
    const ArchitectureRow* row = registry.FindRow(name);
    if (row == nullptr || registry.IsServed(*row)) served.push_back(name);
  }
  return served.empty() ? names : served;
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
  const std::vector<std::string> candidates =
      ServedOf(registry.ArchitecturesOfModelType(identity.model_type), registry);
  if (candidates.empty()) return NoArchitecture(identity, registry);
  if (candidates.size() > 1) {
    return Refused(
        fmt::format("{} names no architectures, and model_type '{}' fits several: {}; fix: add "
                    "\"architectures\" with one of them",
                    identity.source, identity.model_type, Join(candidates, ", ")));
  }
  trace.push_back({"architecture", candidates[0],
                   fmt::format("architectures is absent; model_type '{}'", identity.model_type)});
  return candidates[0];
}

// model_type must not contradict the architecture.
Status CheckModelType(const Identity& identity, const Resolution& resolution,
                      const Registry& registry, std::vector<ResolutionStep>& trace) {
  const std::string& type = identity.model_type;
  if (type.empty() || type == resolution.entry->traits.model_type) return {};
  const std::vector<std::string> others = registry.ArchitecturesOfModelType(type);
  const ArchitectureRow* own = registry.FindRow(resolution.architecture);
  const bool same_family =
      others.empty() || std::any_of(others.begin(), others.end(), [&](const std::string& name) {
        const ArchitectureRow* row = registry.FindRow(name);
        return name == resolution.architecture ||
               (own != nullptr && row != nullptr && row->provider == own->provider);
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

constexpr std::string_view kEagle = "Eagle3";
constexpr std::string_view kEaglePrefix = "EAGLE3";

// The registered name of an EAGLE-3 draft: checkpoints spell the mark in front, behind, or leave it
// to draft_vocab_size.
std::string WithoutEagle(std::string name) {
  for (size_t at = name.find(kEagle); at != std::string::npos; at = name.find(kEagle)) {
    name.erase(at, kEagle.size());
  }
  return name.starts_with(kEaglePrefix) ? name : std::string(kEaglePrefix) + name;
}

// Step 4; the name itself when the rule does not apply.
std::string RewriteDraft(const Identity& identity, const std::string& name,
                         const Registry& registry, std::vector<ResolutionStep>& trace) {
  const bool marked = name.starts_with(kEagle) || name.ends_with(kEagle);
  if (!identity.has_draft_vocab_size && !marked) return name;
  const ArchitectureRow* row = registry.FindRow(name);
  if (row != nullptr && row->kind == ModelKind::kDraft) {
    trace.push_back({"draft", name, "a draft of EAGLE-3 under its own name in the index"});
    return name;
  }
  std::string rewritten = WithoutEagle(name);
  trace.push_back({"draft", rewritten,
                   identity.has_draft_vocab_size
                       ? "draft_vocab_size is present: 'Eagle3' is cut, 'EAGLE3' put in front"
                       : "the name is marked: 'Eagle3' is cut, 'EAGLE3' put in front"});
  return rewritten;
}

// How checkpoints of one base are called, with their heads.
constexpr std::string_view kHeads[] = {"ForCausalLM", "LMHeadModel", "ForConditionalGeneration",
                                       "ForMaskedLM"};

// The row of the architecture that has a head where `name` has none or another one.
const ArchitectureRow* SiblingOf(std::string_view stem, const Registry& registry) {
  for (const std::string_view head : kHeads) {
    const ArchitectureRow* row = registry.FindRow(std::string(stem) + std::string(head));
    if (row != nullptr) return row;
  }
  return nullptr;
}

// A name outside the index that is a known one without its head ("LlamaModel"), or with another.
Status ServeVariant(const Status& failure, const std::string& name, Registry& registry,
                    Resolution& resolution) {
  constexpr std::string_view kBase = "Model";
  if (registry.FindRow(name) != nullptr) return failure;
  const size_t other_head = name.find("For");
  const bool is_base = name.ends_with(kBase);
  if (!is_base && other_head == std::string::npos) return failure;
  const std::string stem =
      is_base ? name.substr(0, name.size() - kBase.size()) : name.substr(0, other_head);
  const ArchitectureRow* row = stem.empty() ? nullptr : SiblingOf(stem, registry);
  if (row == nullptr || name == row->architecture) return failure;
  if (!is_base) {
    // A spelling mistake of the same head is no other head.
    if (EditDistance(name, row->architecture) <= 3) return failure;
    return Refused(
        fmt::format("architecture '{}' is a variant of '{}' with another head, which is "
                    "not served; fix: a checkpoint with the head of '{}'",
                    name, row->architecture, row->architecture));
  }
  Result<Registry::Found> found = registry.Find(row->architecture);
  if (!found.ok()) {
    return Refused(fmt::format("architecture '{}' is '{}' without its head: {}", name,
                               row->architecture, found.message()));
  }
  if (found->entry->traits.base_prefix.empty()) {
    return Refused(
        fmt::format("architecture '{}' is '{}' without its head, which the family does "
                    "not serve; fix: a checkpoint of '{}'",
                    name, row->architecture, row->architecture));
  }
  resolution.entry = std::move(found->entry);
  resolution.provider = std::move(found->provider);
  resolution.architecture = row->architecture;
  resolution.headless = true;
  resolution.trace.push_back({"variant", resolution.architecture,
                              fmt::format("'{}' is its base: names lack '{}', a head may be absent",
                                          name, resolution.entry->traits.base_prefix)});
  return {};
}

// Step 3: the model is its vision encoder.
Status ServeVisionEncoder(const std::string& name, Registry& registry, Resolution& resolution) {
  TN_ASSIGN_OR_RETURN(const auto found, registry.FindVisionEncoder(name));
  ModelEntry entry;
  entry.architecture = found.entry->architecture;
  entry.kind = ModelKind::kVisionEncoder;
  entry.read_config = found.entry->read_config;
  entry.names = found.entry->names;
  entry.create = found.entry->create;
  resolution.entry = std::make_shared<const ModelEntry>(std::move(entry));
  resolution.provider = found.provider;
  resolution.trace.push_back(
      {"vision encoder", found.provider, "mm-encoder-only; later steps do not apply"});
  return {};
}

// Step 6.
Status ServeFromIndex(const std::string& rewritten, Registry& registry, Resolution& resolution) {
  resolution.architecture = rewritten;
  Result<Registry::Found> found = registry.Find(rewritten);
  if (found.ok()) {
    resolution.entry = std::move(found->entry);
    resolution.provider = std::move(found->provider);
    return {};
  }
  if (rewritten == resolution.stated) {
    return ServeVariant(found.status(), rewritten, registry, resolution);
  }
  return Refused(fmt::format("{}; '{}' stands for the checkpoint's '{}' ({})", found.message(),
                             rewritten, resolution.stated, resolution.trace.back().why));
}

}  // namespace

Result<Resolution> Resolve(const Identity& identity, Registry& registry,
                           const ResolveOptions& options) {
  Resolution resolution;
  std::vector<ResolutionStep>& trace = resolution.trace;
  TN_ASSIGN_OR_RETURN(resolution.stated, ChooseArchitecture(identity, registry, trace));
  resolution.architecture = resolution.stated;
  if (options.mm_encoder_only) {
    TN_RETURN_IF_ERROR(ServeVisionEncoder(resolution.stated, registry, resolution));
    return resolution;
  }
  const std::string rewritten = RewriteDraft(identity, resolution.stated, registry, trace);
  if (options.targets != TargetMode::kOff) {
    TN_ASSIGN_OR_RETURN(resolution.candidates, registry.FindTargets(resolution.stated));
  }
  const Status status = ServeFromIndex(rewritten, registry, resolution);
  if (!status.ok()) {
    const Status failure = WithUnknownModelType(status, identity, registry);
    if (resolution.candidates.empty()) return failure;
    // A target counts more than the rewriting: its config is that of the name before it.
    resolution.index_failure = failure;
    Result<Registry::Found> stated = registry.Find(resolution.stated);
    if (!stated.ok()) return failure;
    resolution.entry = std::move(stated->entry);
    resolution.provider = std::move(stated->provider);
    resolution.architecture = resolution.stated;
    return resolution;
  }
  TN_RETURN_IF_ERROR(CheckModelType(identity, resolution, registry, trace));
  trace.push_back({"provider", resolution.provider, std::string(NameOf(resolution.entry->kind))});
  if (const auto reader = registry.FindConfigReader(identity.model_type)) {
    resolution.config_reader = reader->entry;
    trace.push_back({"config reader", reader->provider,
                     fmt::format("reads model_type '{}'", identity.model_type)});
  }
  return resolution;
}

Result<DraftResolution> ResolveDraft(std::string_view mode, const Identity* draft,
                                     Registry& registry) {
  DraftResolution resolution;
  if (!registry.DraftsWithOwnModel(mode)) {
    TN_ASSIGN_OR_RETURN(const auto found, registry.FindDraftBuilder(mode));
    resolution.builder = found.entry;
    return resolution;
  }
  if (draft == nullptr) {
    return UsageError(fmt::format(
        "speculative mode '{}' drafts with the model of another checkpoint and requires its "
        "config; fix: name the draft model",
        mode));
  }
  TN_ASSIGN_OR_RETURN(resolution.model, Resolve(*draft, registry),
                      fmt::format("the draft model of mode '{}'", mode));
  return resolution;
}

}  // namespace tenon
