#include "tenon/plan/report.h"

#include <fmt/format.h>

#include <cmath>
#include <map>

#include "tenon/base/text.h"
#include "tenon/modules/attention.h"
#include "tenon/ops/kernel_choice.h"
#include "tenon/plan/options.h"

namespace tenon {
namespace {

Json ResolutionJson(const PlannedModel& plan) {
  Json::Array steps;
  for (const ResolutionStep& step : plan.resolution.trace) {
    Json row;
    row.Set("what", step.what);
    row.Set("outcome", step.outcome);
    row.Set("why", step.why);
    steps.push_back(std::move(row));
  }
  return steps;
}

Json AttentionJson(const PlannedModel& plan) {
  Json::Array layers;
  for (const auto& [key, core] : plan.context->attention_layers) {
    const AttentionSpec& spec = core->spec();
    Json row;
    row.Set("key", key);
    row.Set("path", core->path());
    row.Set("kind", NameOf(spec.kind));
    row.Set("heads", spec.heads);
    row.Set("kv_heads", spec.kv_heads);
    row.Set("head_dim", spec.head_dim);
    row.Set("backend", core->backend().name());
    if (core->choice().prefill != nullptr)
      row.Set("prefill_kernel", core->choice().prefill->kernel);
    if (core->choice().decode != nullptr) row.Set("decode_kernel", core->choice().decode->kernel);
    if (spec.window) row.Set("window", *spec.window);
    layers.push_back(std::move(row));
  }
  return layers;
}

Json CacheJson(const PlannedModel& plan) {
  Json::Array groups;
  for (const CacheGroupPlan& group : plan.cache_plan.groups) {
    Json row;
    row.Set("kind", NameOf(group.spec.kind));
    row.Set("layers", static_cast<int64_t>(group.members.size()));
    row.Set("dtype", KvNameOf(group.spec.dtype));
    row.Set("bytes", group.bytes);
    if (group.pages > 0) {
      row.Set("layout", NameOf(group.spec.layout));
      row.Set("page_tokens", static_cast<int64_t>(group.page_tokens));
      row.Set("pages", group.pages);
      row.Set("row_bytes", group.spec.row_bytes);
    } else {
      row.Set("slots", group.slots);
      row.Set("slot_bytes", group.slot_bytes);
    }
    groups.push_back(std::move(row));
  }
  return groups;
}

Json StepsJson(const PlannedModel& plan) {
  Json::Array steps;
  for (const StepSummary& step : plan.steps) {
    Json row;
    row.Set("name", step.name);
    row.Set("records", step.records);
    row.Set("meetings", static_cast<int64_t>(step.meetings));
    row.Set("arena_bytes", step.arena_bytes);
    row.Set("weight_bytes", step.weight_bytes);
    row.Set("operations", step.operations);
    Json kernels{Json::Object{}};
    for (const auto& [name, count] : step.kernels) kernels.Set(name, static_cast<int64_t>(count));
    row.Set("kernels", std::move(kernels));
    Json fused{Json::Object{}};
    for (const auto& [name, count] : step.fused) fused.Set(name, static_cast<int64_t>(count));
    row.Set("fused", std::move(fused));
    steps.push_back(std::move(row));
  }
  return steps;
}

Json MemoryJson(const MemoryLedger& memory) {
  Json row;
  row.Set("weights_stored", memory.weights_stored);
  row.Set("weights_held", memory.weights_held);
  row.Set("weights_derived", memory.weights_derived);
  row.Set("cache", memory.cache);
  row.Set("arena", memory.arena);
  row.Set("scratch", memory.scratch);
  row.Set("total", memory.Total());
  row.Set("construction", memory.construction);
  return row;
}

// The decisions about the schemes of weight matrices, one for each name without its numbers.
std::vector<Decision> SchemesOf(const PlannedModel& plan) {
  std::vector<Decision> schemes;
  for (const Decision& decision : plan.context->ledger.decisions()) {
    if (decision.field == "quantisation") schemes.push_back(decision);
  }
  return schemes;
}

Json QuantisationJson(const PlannedModel& plan) {
  Json::Array rows;
  for (const Decision& scheme : SchemesOf(plan)) {
    Json row;
    row.Set("layers", scheme.requested);
    row.Set("scheme", scheme.resolved);
    row.Set("why", scheme.why);
    row.Set("by", scheme.by);
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string QuantisationText(const PlannedModel& plan) {
  std::string text;
  for (const Decision& scheme : SchemesOf(plan)) {
    text += fmt::format("  {}: {} ({}; by {})\n", scheme.requested, scheme.resolved, scheme.why,
                        scheme.by);
  }
  return text.empty() ? "" : "quantisation\n" + text;
}

Json ParallelJson(const ParallelMapping& mapping) {
  Json row;
  row.Set("tp", static_cast<int64_t>(mapping.tp));
  row.Set("pp", static_cast<int64_t>(mapping.pp));
  row.Set("rank", static_cast<int64_t>(mapping.rank));
  return row;
}

// The three books: what the weights are, what the cache is, what making it all takes for a while.
std::string MemoryText(const MemoryLedger& m) {
  return fmt::format(
      "memory\n  weights {} held ({} in the files), derived {}\n  cache {}\n  steps: activations "
      "{}, scratch {}\n  together {}; while loading up to {} more\n",
      BytesText(m.weights_held), BytesText(m.weights_stored), BytesText(m.weights_derived),
      BytesText(m.cache), BytesText(m.arena), BytesText(m.scratch), BytesText(m.Total()),
      BytesText(m.construction));
}

std::string FusedText(const StepSummary& step) {
  std::vector<std::string> parts;
  for (const auto& [name, count] : step.fused) parts.push_back(fmt::format("{} {}", count, name));
  return parts.empty() ? "" : "    fused: " + Join(parts, ", ") + "\n";
}

// Bytes of weights by stored dtype.
std::map<std::string, int64_t> WeightsByDtype(const PlannedModel& plan) {
  std::map<std::string, int64_t> bytes;
  for (Module* module : plan.context->modules) {
    for (const Parameter& p : module->parameters()) {
      bytes[std::string(NameOf(p.stored_dtype()))] += p.stored_bytes();
    }
  }
  return bytes;
}

// Layers that chose alike are one line.
std::string AttentionText(const PlannedModel& plan) {
  std::map<std::string, int> alike;
  for (const auto& [key, core] : plan.context->attention_layers) {
    const AttentionSpec& s = core->spec();
    ++alike[fmt::format("{} on {} ({}), {} heads, {} kv heads, head_dim {}{}", NameOf(s.kind),
                        core->backend().name(), core->choice().Why(), s.heads, s.kv_heads,
                        s.head_dim, s.window ? fmt::format(", window {}", *s.window) : "")];
  }
  std::string text;
  for (const auto& [line, count] : alike) text += fmt::format("  {} x {}\n", count, line);
  return text.empty() ? "  none\n" : text;
}

std::string CacheText(const PlannedModel& plan) {
  std::string text;
  for (const CacheGroupPlan& g : plan.cache_plan.groups) {
    if (g.pages > 0) {
      text += fmt::format("  {} x {}: {} {}, {} pages of {} tokens, {}\n", g.members.size(),
                          NameOf(g.spec.kind), KvNameOf(g.spec.dtype), NameOf(g.spec.layout),
                          g.pages, g.page_tokens, BytesText(g.bytes));
    } else {
      text += fmt::format("  {} x {}: {} per sequence, {}\n", g.members.size(), NameOf(g.spec.kind),
                          BytesText(g.slot_bytes), BytesText(g.bytes));
    }
  }
  return text.empty() ? "  none\n" : text;
}

// Those that somebody set; the rest is as the table says.
std::string OptionsText(const PlannedModel& plan) {
  std::string text;
  const Json options = EngineOptionTable().ToJson(plan.options);
  const std::string unset = Origin{}.Text();
  for (const Json& option : options.as_array()) {
    const std::string& origin = option.Find("origin")->as_string();
    if (origin == unset) continue;
    text += fmt::format("  {} = {} ({})\n", option.Find("option")->as_string(),
                        option.Find("value")->Dump(), origin);
  }
  return text.empty() ? "" : "options that were set\n" + text;
}

}  // namespace

namespace {

// Configs may hold Infinity and NaN, which JSON cannot: as text.
Json FiniteOnly(const Json& value) {
  if (value.is_number() && !std::isfinite(value.as_double())) return Json(value.Dump());
  if (value.is_array()) {
    Json::Array list;
    for (const Json& element : value.as_array()) list.push_back(FiniteOnly(element));
    return list;
  }
  if (!value.is_object()) return value;
  Json object{Json::Object{}};
  for (const auto& [name, member] : value.as_object()) object.Set(name, FiniteOnly(member));
  return object;
}

}  // namespace

Json ReportJson(const PlannedModel& plan) {
  Json report;
  report.Set("schema", 1);
  report.Set("model", plan.checkpoint->path());
  report.Set("container", NameOf(plan.checkpoint->container()));
  report.Set("architecture", plan.resolution.architecture);
  report.Set("provider", plan.resolution.provider);
  report.Set("kind", NameOf(plan.kind()));
  report.Set("resolution", ResolutionJson(plan));
  report.Set("config", plan.reader->ToJson());
  Json machine;
  machine.Set("cpu", plan.context->machine.cpu);
  machine.Set("isa", NameOf(plan.context->machine.isa));
  machine.Set("cores", static_cast<int64_t>(plan.context->machine.cores));
  machine.Set("available_bytes", plan.context->machine.available_bytes);
  report.Set("machine", std::move(machine));
  report.Set("kernels", NameOf(*plan.kernels));
  report.Set("threads", static_cast<int64_t>(plan.threads));
  report.Set("max_seq_len", plan.max_seq_len);
  Json dtypes{Json::Object{}};
  for (const auto& [name, bytes] : WeightsByDtype(plan)) dtypes.Set(name, bytes);
  report.Set("weights", std::move(dtypes));
  report.Set("attention", AttentionJson(plan));
  report.Set("cache", CacheJson(plan));
  report.Set("steps", StepsJson(plan));
  report.Set("memory", MemoryJson(plan.memory));
  report.Set("options", EngineOptionTable().ToJson(plan.options));
  report.Set("decisions", plan.context->ledger.ToJson());
  report.Set("registrations", Json::Array(plan.registrations.begin(), plan.registrations.end()));
  report.Set("quantisation", QuantisationJson(plan));
  report.Set("parallel", ParallelJson(plan.context->options.mapping));
  return FiniteOnly(report);
}

std::string ReportText(const PlannedModel& plan) {
  std::string text = fmt::format("{}\n{}, {} from family {}, {}\n\n", plan.checkpoint->path(),
                                 plan.resolution.architecture, NameOf(plan.kind()),
                                 plan.resolution.provider, NameOf(plan.checkpoint->container()));
  text += "resolution\n";
  for (const ResolutionStep& step : plan.resolution.trace) {
    text += fmt::format("  {}: {} ({})\n", step.what, step.outcome, step.why);
  }
  for (const std::string& note : plan.registrations) {
    text += fmt::format("  registration: {}\n", note);
  }
  const ParallelMapping& mapping = plan.context->options.mapping;
  if (mapping.world() > 1) {
    text += fmt::format("parallel\n  rank {} of tp {} x pp {}: the figures below are its own\n",
                        mapping.rank, mapping.tp, mapping.pp);
  }
  const MachineProfile& machine = plan.context->machine;
  text += fmt::format("machine\n  {}, {}, {} cores, {} available; kernels {}, {} threads\n",
                      machine.cpu, NameOf(machine.isa), machine.cores,
                      BytesText(machine.available_bytes), NameOf(*plan.kernels), plan.threads);
  text += "weights\n";
  for (const auto& [name, bytes] : WeightsByDtype(plan))
    text += fmt::format("  {}: {}\n", name, BytesText(bytes));
  text += QuantisationText(plan);
  text += "attention\n" + AttentionText(plan);
  text += fmt::format("cache, {} tokens\n", plan.max_seq_len) + CacheText(plan);
  text += "steps\n";
  for (const StepSummary& step : plan.steps) {
    text += fmt::format("  {}: {} records, {} meetings, {} of activations\n", step.name,
                        step.records, step.meetings, BytesText(step.arena_bytes));
    for (const auto& [kernel, count] : step.kernels)
      text += fmt::format("    {:5} {}\n", count, kernel);
    text += FusedText(step);
  }
  text += MemoryText(plan.memory);
  text += OptionsText(plan);
  text += "decisions\n";
  // Layers that were decided alike are one line.
  std::vector<std::pair<std::string, int>> decisions;
  for (const Decision& d : plan.context->ledger.decisions()) {
    if (d.field == "quantisation") continue;  // above
    std::string line = fmt::format("{}: {}{} {} ({}, by {})", d.field, d.requested,
                                   d.requested.empty() ? "" : " ->", d.resolved, d.why, d.by);
    if (!decisions.empty() && decisions.back().first == line) {
      ++decisions.back().second;
    } else {
      decisions.emplace_back(std::move(line), 1);
    }
  }
  for (const auto& [line, count] : decisions) {
    text += count == 1 ? fmt::format("  {}\n", line) : fmt::format("  {} x {}\n", count, line);
  }
  const std::vector<std::string> unread = plan.reader->UnreadKeys();
  if (!unread.empty()) text += "config keys that nothing read\n  " + Join(unread, ", ") + "\n";
  return text;
}

}  // namespace tenon
