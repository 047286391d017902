// Generate: prompt ids to text, streamed as it comes. Ends at an end token, a stop string, the
// wanted length or a full context; nothing is shifted silently. One generation at a time on a
// runner; not thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/engine/model_runner.h"
#include "tenon/engine/sampler.h"
#include "tenon/tokenizer/tokenizer.h"

namespace tenon {

struct GenerateOptions {
  std::optional<int64_t> max_new_tokens;  // absent: until something else ends it
  SamplingOptions sampling;
  double repetition_penalty = 1;  // of tokens in prompt and answer; 1: off
  std::vector<std::string> stop;  // not part of the text
  std::set<int32_t> end_tokens;
};

// What the options say; a random seed is drawn here when none was set. End tokens are the model's.
GenerateOptions GenerateOptionsFrom(const EngineOptions& options);

// A full context is called "length" like the wanted length: only the callers may tell them apart.
enum class FinishReason { kEnd, kStopString, kLength, kContextFull, kCancelled };
std::string_view NameOf(FinishReason reason);

struct Generated {
  std::vector<int32_t> ids;  // the end token is not among them
  std::string text;
  FinishReason reason = FinishReason::kLength;
  double prefill_seconds = 0;
  double decode_seconds = 0;  // of all tokens after the first
  int64_t prompt_tokens = 0;
};

// Text so far finished; false ends the generation.
using OnText = std::function<bool(std::string_view text)>;

// Appends the prompt to the runner's sequence (reset it for a new text) and generates. The runner's
// sequence then holds prompt and answer, but for the last token.
Result<Generated> Generate(ModelRunner& runner, const std::shared_ptr<const Tokenizer>& tokenizer,
                           std::span<const int32_t> prompt, const GenerateOptions& options,
                           const OnText& on_text);

// Holds back text that may be the beginning of a stop string.
class StopMatcher {
 public:
  explicit StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {}
  // The text that may go out now; `stopped` when a stop string is complete (what precedes it is
  // returned). The one that is complete first counts, of those that end together the longest,
  // however the text is cut into pieces.
  std::string Push(std::string_view text, bool& stopped);
  // At the end: what was held back.
  std::string Finish() { return std::move(held_); }

 private:
  std::vector<std::string> stops_;
  std::string held_;
};

}  // namespace tenon
