// The five numbers of multi-head latent attention (DeepSeek-V2 paper, section 2.1). They make sense
// together only, so a problem with one is told with all five and where each comes from. A value and
// a pure function; thread-safe.
#pragma once

#include <cstdint>

#include "tenon/config/model_config.h"

namespace tenon {

struct MlaSizes {
  int64_t q_lora_rank = 0;  // 0: null in the config, queries are projected directly
  int64_t kv_lora_rank = 1;
  int64_t qk_nope_head_dim = 1;
  int64_t qk_rope_head_dim = 0;  // even
  int64_t v_head_dim = 1;
};

// After config.heads. Sets kv_heads and head_dim, which are those of q and k. Error: one for all
// numbers that are missing or out of range.
MlaSizes ReadMlaSizes(ConfigReader& reader, ModelConfig& config);

}  // namespace tenon
