// Normalizer: rewrites text before it is cut (Unicode normal forms, replacements, prefixes). Made
// from tokenizer.json's "normalizer". Immutable, thread-safe.
#pragma once

#include <memory>
#include <string>

#include "tenon/tokenizer/component_json.h"

namespace tenon {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  // `text` is valid UTF-8 and stays so. Errors: a regex that gives up on this text.
  virtual Status Apply(std::string* text) const = 0;
};

// Null for JSON null. Errors (kRefused) name the component.
Result<std::unique_ptr<const Normalizer>> MakeNormalizer(const ComponentJson& json);

}  // namespace tenon
