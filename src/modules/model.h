// Model: what the engine drives, whatever the family: decoder, encoder-decoder, encoder, recurrent,
// hybrid. A family implements Forward (and Encode) by recording; it never sees a batch's data. Not
// thread-safe while recording.
#pragma once

#include "tenon/modules/forward.h"
#include "tenon/modules/module.h"

namespace tenon {

class Model : public Module {
 public:
  using Module::Module;

  // Records the step: [num_logit_rows, vocab] fp32.
  virtual Value Forward(tenon::Forward& pass) const = 0;
  // Encoder-decoder only: records the encoder over the step's rows and the writing of the cross
  // caches.
  virtual void Encode(tenon::Forward& /*pass*/) const {}
};

}  // namespace tenon
