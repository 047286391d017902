// PostProcessor: the special tokens that encoding puts before and after a text when asked to
// (tokenizer.json's "post_processor" for a single sequence, or a GGUF's add_bos and add_eos).
// Offsets and pairs are not handled. A value; immutable, thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "tenon/tokenizer/component_json.h"

namespace tenon {

struct PostProcessor {
  std::vector<int32_t> before;
  std::vector<int32_t> after;
};

// Adds nothing for JSON null. Errors (kRefused): an unknown component, a token id >= `id_limit`, a
// template in which the text does not occur exactly once.
Result<PostProcessor> MakePostProcessor(const ComponentJson& json, int32_t id_limit);

}  // namespace tenon
