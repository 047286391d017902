#include "tenon/engine/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <random>

#include "tenon/engine/repetition_penalty.h"

namespace tenon {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Collects the answer: decoding, stop strings, the caller's stream.
class Answer {
 public:
  Answer(const std::shared_ptr<const Tokenizer>& tokenizer, const GenerateOptions& options,
         const OnText& on_text)
      : tokens_(tokenizer->vocab_size()),
        decoder_(tokenizer),
        matcher_(options.stop),
        on_text_(on_text) {}

  // False when the generation is over; the reason is set then.
  Result<bool> Add(int32_t id, Generated& result) {
    result.ids.push_back(id);
    std::string text;
    if (id < tokens_) {
      TN_ASSIGN_OR_RETURN(text, decoder_.Push(id));
    }
    bool stopped = false;
    const bool wanted = Emit(matcher_.Push(text, stopped), result);
    if (stopped) result.reason = FinishReason::kStopString;
    if (!wanted) result.reason = FinishReason::kCancelled;
    return wanted && !stopped;
  }
  void Finish(Generated& result) {
    if (result.reason == FinishReason::kStopString) return;
    if (result.reason == FinishReason::kCancelled) return;  // nobody listens any more
    bool stopped = false;
    const std::string last = matcher_.Push(decoder_.Finish(), stopped);
    if (stopped) result.reason = FinishReason::kStopString;
    Emit(stopped ? last : last + matcher_.Finish(), result);
  }

 private:
  bool Emit(const std::string& text, Generated& result) {
    result.text += text;
    return text.empty() || !on_text_ || on_text_(text);
  }
  // The model may have more rows than this (padding); they have no text.
  int64_t tokens_;
  StreamDecoder decoder_;
  StopMatcher matcher_;
  const OnText& on_text_;
};

}  // namespace

GenerateOptions GenerateOptionsFrom(const EngineOptions& options) {
  GenerateOptions generate;
  generate.max_new_tokens = options.max_new_tokens.value;
  generate.sampling = {
      .temperature = options.temp.value,
      .top_k = options.top_k.value,
      .top_p = options.top_p.value,
      .min_p = options.min_p.value,
      .seed = static_cast<uint64_t>(options.seed.value.value_or(std::random_device{}()))};
  generate.repetition_penalty = options.repetition_penalty.value;
  generate.stop = options.stop.value;
  return generate;
}

std::string_view NameOf(FinishReason reason) {
  switch (reason) {
    case FinishReason::kEnd:
      return "end";
    case FinishReason::kStopString:
      return "stop";
    case FinishReason::kLength:
    case FinishReason::kContextFull:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
  }
  return "unknown";
}

std::string StopMatcher::Push(std::string_view text, bool& stopped) {
  held_ += text;
  stopped = false;
  size_t begin = std::string::npos;
  size_t end = std::string::npos;
  for (const std::string& stop : stops_) {
    const size_t at = stop.empty() ? std::string::npos : held_.find(stop);
    if (at == std::string::npos || at + stop.size() > end) continue;
    begin = at + stop.size() < end ? at : std::min(begin, at);
    end = at + stop.size();
  }
  if (end != std::string::npos) {
    stopped = true;
    std::string out = held_.substr(0, begin);
    held_.clear();
    return out;
  }
  // The longest end of the text that begins some stop string stays here.
  size_t keep = 0;
  for (const std::string& stop : stops_) {
    for (size_t n = std::min(stop.size(), held_.size()); n > keep; --n) {
      if (held_.ends_with(std::string_view(stop).substr(0, n))) keep = n;
    }
  }
  std::string out = held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return out;
}

Result<Generated> Generate(ModelRunner& runner, const std::shared_ptr<const Tokenizer>& tokenizer,
                           std::span<const int32_t> prompt, const GenerateOptions& options,
                           const OnText& on_text) {
  TN_RETURN_IF_ERROR(CheckSampling(options.sampling));
  if (!runner.plan().context->has_logits) {
    return Refused(fmt::format(
        "'{}' is a base model without a head, which text cannot be generated with; fix: the "
        "checkpoint of '{}', or `tenon logits` for its hidden states",
        runner.plan().resolution.stated, runner.plan().resolution.architecture));
  }
  Generated result;
  result.prompt_tokens = static_cast<int64_t>(prompt.size());
  Sampler sampler(options.sampling);
  RepetitionPenalty penalty(options.repetition_penalty, runner.vocab());
  Answer answer(tokenizer, options, on_text);
  const Clock::time_point start = Clock::now();
  TN_RETURN_IF_ERROR(runner.Extend(prompt, WantLogits::kLast));
  result.prefill_seconds = SecondsSince(start);
  penalty.See(prompt);
  const Clock::time_point decoding = Clock::now();
  while (options.max_new_tokens != 0) {
    TN_ASSIGN_OR_RETURN(const int32_t id, sampler.Sample(penalty.Apply(runner.logits())));
    penalty.See({&id, 1});
    if (options.end_tokens.contains(id)) {
      result.reason = FinishReason::kEnd;
      break;
    }
    TN_ASSIGN_OR_RETURN(const bool more, answer.Add(id, result));
    if (!more) break;
    if (static_cast<int64_t>(result.ids.size()) == options.max_new_tokens) break;
    if (runner.length() >= runner.plan().max_seq_len) {
      result.reason = FinishReason::kContextFull;
      break;
    }
    TN_RETURN_IF_ERROR(runner.Extend(std::span(&id, 1), WantLogits::kLast));
  }
  result.decode_seconds = SecondsSince(decoding);
  answer.Finish(result);
  return result;
}

}  // namespace tenon
