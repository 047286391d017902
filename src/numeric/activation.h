// Activation: the elementwise functions between a model's matrices, by name. Which one a model uses
// is read by config/, computing is done by kernels/ and recorded by ops/. A plain enum;
// thread-safe.
#pragma once

#include <string_view>

namespace tenon {

enum class Activation {
  kNone,
  kSilu,
  kGelu,      // erf form
  kGeluTanh,  // "gelu_new", "gelu_pytorch_tanh", "gelu_fast"
  kQuickGelu,
  kRelu,
  kRelu2,  // relu(x)^2
  kSigmoid,
  kTanh,
};
// "silu", "gelu_tanh": our spelling, for reports.
std::string_view NameOf(Activation activation);

}  // namespace tenon
