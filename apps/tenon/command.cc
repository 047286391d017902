#include "command.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <iostream>

#include "tenon/base/env.h"
#include "tenon/base/file.h"
#include "tenon/base/text.h"
#include "tenon/config/option_table.h"

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

}  // namespace

void ModelOptions::AddTo(CLI::App& command) {
  command.add_option("MODEL", model_, "A Hugging Face directory or a .gguf file")->required();
  const auto add = [&](Row& row, const char* name, const char* environment, const char* help) {
    row.name = name;
    row.environment = environment;
    row.option =
        command.add_option(std::string("--") + name, row.text, help)->group("Model options");
  };
  add(compute_, "compute", "TENON_COMPUTE", "Arithmetic: auto, fp32");
  add(backend_, "attn-backend", "TENON_ATTN_BACKEND",
      "Attention: auto, NATIVE (alias TRTLLM), VANILLA");
  add(kv_dtype_, "kv-dtype", "TENON_KV_DTYPE", "Cached keys and values: auto, f32, bf16");
  add(max_seq_len_, "max-seq-len", "TENON_MAX_SEQ_LEN", "Context in tokens: auto, or a number");
  add(page_tokens_, "page-tokens", "TENON_PAGE_TOKENS",
      "Tokens of a cache page: auto, or 16, 32, 64, 128, 256");
  add(prefill_chunk_, "prefill-chunk", "TENON_PREFILL_CHUNK",
      "Rows of one prefill step (default 512)");
  add(threads_, "threads", "TENON_THREADS", "Threads: auto (all usable cores), or a number");
  add(isa_, "isa", "TENON_ISA",
      "Instruction set: auto, reference, baseline, avx2, avx512, avx512_bf16_vnni");
  add(memory_, "memory", "TENON_MEMORY", "Memory to plan for: auto, or a size such as 8G");
  add(downgrades_, "allow-downgrade", "TENON_ALLOW_DOWNGRADE",
      "Consent to named downgrades, comma separated");
}

Result<Sourced<std::string>> ModelOptions::TextOf(const Row& row) const {
  if (row.option->count() > 0) {
    return Sourced<std::string>{row.text, {Origin::Kind::kUser, std::string("--") + row.name}};
  }
  if (const auto value = GetEnv(row.environment)) {
    return Sourced<std::string>{*value, {Origin::Kind::kEnvironment, row.environment}};
  }
  return Sourced<std::string>{"auto", {}};
}

namespace {

// A count: "auto" is 0.
Result<Sourced<int64_t>> CountOf(const Sourced<std::string>& text, std::string_view name,
                                 int64_t low, int64_t high) {
  if (EqualsIgnoreCase(text.value, "auto")) return Sourced<int64_t>{0, text.origin};
  TN_ASSIGN_OR_RETURN(const int64_t value, ParseInteger(text.value, name));
  if (value < low || value > high) {
    return UsageError(fmt::format("{} = {} (set by {}), allowed: auto, or {} to {}", name, value,
                                  text.origin.Text(), low, high));
  }
  return Sourced<int64_t>{value, text.origin};
}

}  // namespace

Result<PlanOptions> ModelOptions::Resolve() const {
  PlanOptions options;
  TN_ASSIGN_OR_RETURN(options.compute, TextOf(compute_));
  TN_ASSIGN_OR_RETURN(options.attention_backend, TextOf(backend_));
  TN_ASSIGN_OR_RETURN(options.kv_dtype, TextOf(kv_dtype_));
  TN_ASSIGN_OR_RETURN(options.isa, TextOf(isa_));
  const auto count = [&](const Row& row, int64_t low, int64_t high,
                         Sourced<int64_t>& target) -> Status {
    TN_ASSIGN_OR_RETURN(const Sourced<std::string> text, TextOf(row));
    TN_ASSIGN_OR_RETURN(Sourced<int64_t> value, CountOf(text, row.name, low, high));
    if (value.value != 0) target = std::move(value);
    return {};
  };
  TN_RETURN_IF_ERROR(count(max_seq_len_, 1, int64_t{1} << 30, options.max_seq_len));
  TN_RETURN_IF_ERROR(count(threads_, 1, 1024, options.threads));
  TN_RETURN_IF_ERROR(count(prefill_chunk_, 1, 1 << 20, options.prefill_chunk));
  TN_RETURN_IF_ERROR(count(page_tokens_, 16, 256, options.page_tokens));
  const int64_t page = options.page_tokens.value;
  if (page != 0 && (page & (page - 1)) != 0) {
    return UsageError(fmt::format("page-tokens = {}, allowed: auto, 16, 32, 64, 128, 256", page));
  }
  TN_ASSIGN_OR_RETURN(const Sourced<std::string> memory, TextOf(memory_));
  if (!EqualsIgnoreCase(memory.value, "auto")) {
    TN_ASSIGN_OR_RETURN(options.memory_bytes.value, ParseSize(memory.value), "memory");
    options.memory_bytes.origin = memory.origin;
  }
  TN_ASSIGN_OR_RETURN(const Sourced<std::string> downgrades, TextOf(downgrades_));
  if (downgrades.origin.IsExplicit()) {
    for (const std::string_view name : Split(downgrades.value, ',')) {
      options.allowed_downgrades.emplace(Trim(name));
    }
  }
  return options;
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
