// The kernels' code of an activation. Private helper of the ops' sources.
#pragma once

#include "tenon/kernels/table.h"
#include "tenon/ops/activation.h"

namespace tenon {

inline ActivationCode CodeOf(Activation activation) {
  switch (activation) {
    case Activation::kNone:
      return ActivationCode::kNone;
    case Activation::kSilu:
      return ActivationCode::kSilu;
    case Activation::kGelu:
      return ActivationCode::kGelu;
    case Activation::kGeluTanh:
      return ActivationCode::kGeluTanh;
    case Activation::kQuickGelu:
      return ActivationCode::kQuickGelu;
    case Activation::kRelu:
      return ActivationCode::kRelu;
    case Activation::kRelu2:
      return ActivationCode::kRelu2;
    case Activation::kSigmoid:
      return ActivationCode::kSigmoid;
    case Activation::kTanh:
      return ActivationCode::kTanh;
  }
  return ActivationCode::kNone;
}

}  // namespace tenon
