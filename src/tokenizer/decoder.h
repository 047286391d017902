// Decoder: token spellings -> text, one token at a time, so that a whole decode and a stream are
// the same code. A Decoder is the immutable recipe (from tokenizer.json's "decoder"), thread-safe;
// it makes chains of DecodeStages, each the state of one text for one thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/tokenizer/component_json.h"

namespace tenon {

// One stage of a running decode. Receives tokens as one or more fragments (a fused token may never
// end before Finish) and passes on tokens in the same form.
class DecodeStage {
 public:
  virtual ~DecodeStage() = default;
  virtual void Push(std::string_view fragment, bool ends_token) = 0;
  // There are no more tokens: passes on what is held back.
  virtual void Finish() = 0;
};

enum class DecodeMode {
  kWhole,   // exactly as Hugging Face decodes a finished list of ids
  kStream,  // text goes out as soon as it is certain enough to show
};

class Decoder {
 public:
  virtual ~Decoder() = default;
  // A stage that passes its output to `next`, which outlives it.
  virtual std::unique_ptr<DecodeStage> Start(DecodeStage* next, DecodeMode mode) const = 0;
};

// The stages of one decode; the last one appends to *out.
class DecodeChain {
 public:
  // `decoders` and `out` outlive the chain.
  DecodeChain(const std::vector<std::unique_ptr<const Decoder>>& decoders, DecodeMode mode,
              std::string* out);
  void PushToken(std::string_view spelling) { stages_.back()->Push(spelling, true); }
  void Finish() { stages_.back()->Finish(); }

 private:
  std::vector<std::unique_ptr<DecodeStage>> stages_;  // last stage first
};

// A Sequence becomes its parts; JSON null becomes the joining with blanks that HF does then. Errors
// (kRefused) name the component.
Result<std::vector<std::unique_ptr<const Decoder>>> MakeDecoders(const ComponentJson& json);
// What GPT-2's byte-level vocabularies need.
std::vector<std::unique_ptr<const Decoder>> MakeByteLevelDecoders();

}  // namespace tenon
