// What a BatchEngine has in flight: jobs (requests), their lines (one answer's sequence each), and
// a line's part of a step. Private to the engine's sources. Not thread-safe.
#pragma once

#include <span>
#include <vector>

#include "tenon/engine/batch_engine.h"

namespace tenon {

// One request and what became of it.
struct BatchEngine::Job {
  BatchRequest request;
  BatchResult result;
  int open = 0;         // answers that have not ended
  bool forked = false;  // all of its lines exist
};

// One answer's sequence.
struct BatchEngine::Line {
  Line(Job& of, int copy_index, int64_t vocab)
      : job(of),
        copy(copy_index),
        tokens(of.request.prompt),
        sampler(SamplingFor(of.request, copy_index)),
        penalty(of.request.repetition_penalty, vocab) {
    penalty.See(tokens);
  }
  static SamplingOptions SamplingFor(const BatchRequest& request, int copy) {
    SamplingOptions sampling = request.sampling;
    sampling.seed += static_cast<uint64_t>(copy);
    return sampling;
  }

  int64_t length() const { return static_cast<int64_t>(tokens.size()); }
  bool decodes() const { return computed > 0 && computed + 1 == length(); }
  BatchAnswer& answer() const { return job.result.answers[static_cast<size_t>(copy)]; }

  Job& job;
  int copy;
  std::vector<int32_t> tokens;  // the prompt, then what was sampled
  int64_t computed = 0;         // rows in the cache
  int64_t kept = 0;             // rows whose logits the answer has passed
  int32_t sequence = -1;        // of the cache; -1: none, it waits
  uint64_t regime = 0;          // of the cached rows' rotation
  Sampler sampler;
  RepetitionPenalty penalty;
  bool ended = false;
};

struct BatchEngine::Planned {
  Line* line = nullptr;
  int64_t rows = 1;
  bool decode = false;
  int64_t logit_rows = 0;
};

}  // namespace tenon
