// StepLayout: what one engine step computes: rows, their sequences, cache pages and slots. The
// engine fills it before the tape runs; its arrays never move, so tapes keep their addresses.
// Prefill requests come first, then verify, then decode; rows past the last request are padding,
// for which attention gives zeros. Which phases occur is fixed for a tape, how many requests of
// each is not. Not thread-safe while being filled; constant while a tape runs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tenon/ops/recurrent.h"

namespace tenon {

enum class RequestPhase : int32_t { kPrefill, kVerify, kDecode };

// One sequence's part of the step.
struct StepRequest {
  RequestPhase phase = RequestPhase::kPrefill;
  int32_t begin = 0;  // rows [begin, end) of the step's values
  int32_t end = 0;
  int32_t kv_len = 0;     // cached rows after this step's are appended (decoder self attention)
  int32_t cross_len = 0;  // encoder rows of this sequence (cross attention)
  // Which keys each row sees, in place of causality (a window still counts): bit row * keys + key
  // in little bit order, 1: seen; keys as many as the layer attends for this request. Null: no
  // mask. Only layers with AttentionSpec::custom_mask take one.
  const uint8_t* mask = nullptr;
};

// The pages of every request in one cache group. Logical page j of request i: pages[i * max_pages +
// j]; anything (PagePool::kDropped) where no query of the step sees a row of the page.
struct GroupPages {
  const int32_t* pages = nullptr;  // [requests, max_pages]
  int32_t max_pages = 0;
  int32_t page_tokens = 0;
};

struct StepLayout {
  int64_t num_tokens = 0;
  int64_t num_logit_rows = 0;
  const int32_t* token_ids = nullptr;  // [num_tokens]
  const int32_t* positions = nullptr;  // [num_tokens]
  const int32_t* rope_regimes =
      nullptr;                     // [num_tokens]: row of each rope's frequency table; null: all 0
  const int32_t* zeros = nullptr;  // [num_tokens] of 0: token types of a single segment
  const int32_t* logit_rows = nullptr;  // [num_logit_rows]: rows whose logits are wanted
  std::span<const StepRequest> requests = {};
  std::span<const GroupPages> groups = {};        // by cache group; state groups have no pages
  std::span<const SequenceRuns> state_runs = {};  // by cache group; paged groups have none
};

}  // namespace tenon
