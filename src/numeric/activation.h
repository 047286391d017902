// Activation: the elementwise functions between a model's matrices, by name, and what joins two.
// Which one a model uses is read by config/, computing is done by kernels/ and recorded by ops/. A
// plain enum; thread-safe.
#pragma once

#include <string_view>
#include <variant>

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

// (clamp(up, -limit, limit) + 1) * g * sigmoid(alpha * g), where g = min(gate, limit) (Hugging Face
// modeling_gpt_oss.py, GptOssExperts).
struct ClampedSwiglu {
  float alpha = 1.702f;
  float limit = 7;
};
// How an MLP joins what gate and up give: act(gate) * up, or a form of its own.
using GatedUnit = std::variant<Activation, ClampedSwiglu>;

}  // namespace tenon
