#include "tenon/config/mla_sizes.h"

#include <fmt/format.h>

#include <algorithm>

#include "tenon/base/text.h"
#include "tenon/config/config_value.h"

namespace tenon {
namespace {

struct Row {
  const char* key;
  int64_t MlaSizes::*field;
  IntRange range;
  bool may_be_null = false;
  bool even = false;
};
constexpr Row kRows[] = {
    {.key = "q_lora_rank",
     .field = &MlaSizes::q_lora_rank,
     .range = kHeadCount,
     .may_be_null = true},
    {.key = "kv_lora_rank", .field = &MlaSizes::kv_lora_rank, .range = kHeadCount},
    {.key = "qk_nope_head_dim", .field = &MlaSizes::qk_nope_head_dim, .range = kHeadCount},
    {.key = "qk_rope_head_dim",
     .field = &MlaSizes::qk_rope_head_dim,
     .range = {.low = 0, .high = kHeadCount.high},
     .even = true},
    {.key = "v_head_dim", .field = &MlaSizes::v_head_dim, .range = kHeadCount},
};

bool IsGood(const ConfigReader& reader, const Row& row) {
  const Json* value = reader.Peek(row.key);
  if (value == nullptr) return row.may_be_null;
  int64_t number = 0;
  std::string note;
  return ToInt(*value, row.range, number, note) && (!row.even || number % 2 == 0);
}

std::string AllowedText(const Row& row) {
  return fmt::format("{}{}{}", Allowed(row.range), row.even ? ", even" : "",
                     row.may_be_null ? ", or null" : "");
}

std::string AllFive(const ConfigReader& reader) {
  std::vector<std::string> numbers;
  for (const Row& row : kRows) {
    const Json* value = reader.Peek(row.key);
    numbers.push_back(fmt::format("{} = {} ({})", row.key,
                                  value == nullptr ? "absent" : ValueText(*value),
                                  reader.OriginText(row.key)));
  }
  return Join(numbers, ", ");
}

}  // namespace

MlaSizes ReadMlaSizes(ConfigReader& reader, ModelConfig& config) {
  std::vector<std::string> wrong;
  for (const Row& row : kRows) {
    if (!IsGood(reader, row)) {
      wrong.push_back(fmt::format("{} must be {}", row.key, AllowedText(row)));
    }
  }
  MlaSizes sizes;
  if (wrong.empty()) {
    for (const Row& row : kRows) {
      sizes.*row.field = reader.Int(row.key, 0, row.range).value;
    }
  } else {
    reader.AddError(fmt::format("MLA geometry: {}; {}; fix: correct {}", Join(wrong, ", "),
                                AllFive(reader), reader.source_name()));
  }
  config.kv_heads = config.heads;
  const int64_t width = sizes.qk_nope_head_dim + sizes.qk_rope_head_dim;
  const int64_t widest = std::max(width, std::max(sizes.v_head_dim, sizes.kv_lora_rank));
  if (config.heads.value[0] * widest > kPositive.high) {
    reader.Error("num_attention_heads", fmt::format("times the width of a head ({}) must be at "
                                                    "most {}",
                                                    widest, kPositive.high));
  }
  config.head_dim = {
      PerLayer<int64_t>(width),
      reader.RecordDerived("qk_head_dim", width, "qk_nope_head_dim + qk_rope_head_dim")};
  return sizes;
}

}  // namespace tenon
