#include <algorithm>
#include <cmath>
#include <numbers>

#include "tenon/config/rope_parameters.h"

namespace tenon {
namespace {

constexpr double kTwoPi = 2 * std::numbers::pi;

// theta^(-2i / dim): [dim / 2]
std::vector<double> PlainFrequencies(double theta, int64_t dim) {
  std::vector<double> inv_freq(static_cast<size_t>(dim / 2));
  for (size_t i = 0; i < inv_freq.size(); ++i) {
    inv_freq[i] = std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(dim));
  }
  return inv_freq;
}

double FactorOf(const RopeParameters& p, int64_t max_position) {
  if (p.factor) return *p.factor;
  const double original = static_cast<double>(p.original_max_position.value_or(max_position));
  return static_cast<double>(max_position) / original;
}

std::vector<double> DynamicFrequencies(const RopeParameters& p, int64_t dim, int64_t seq_len,
                                       int64_t max_position) {
  if (dim == 2) return {1};  // the exponent below has no value, and theta^0 is 1 for any theta
  const double factor = p.factor.value_or(1);
  const double ratio = static_cast<double>(std::max(seq_len, max_position)) /
                       static_cast<double>(std::max<int64_t>(max_position, 1));
  const double exponent = static_cast<double>(dim) / static_cast<double>(dim - 2);
  return PlainFrequencies(p.theta * std::pow(factor * ratio - (factor - 1), exponent), dim);
}

std::vector<double> YarnFrequencies(const RopeParameters& p, int64_t dim, int64_t max_position) {
  const double factor = FactorOf(p, max_position);
  const double original = static_cast<double>(p.original_max_position.value_or(max_position));
  // The frequency index whose wavelength fits `rotations` times into the original length.
  const auto correction = [&](double rotations) {
    return static_cast<double>(dim) * std::log(original / (rotations * kTwoPi)) /
           (2 * std::log(p.theta));
  };
  double low = correction(p.beta_fast);
  double high = correction(p.beta_slow);
  if (p.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(dim - 1));
  if (low == high) high += 0.001;
  std::vector<double> inv_freq = PlainFrequencies(p.theta, dim);
  for (size_t i = 0; i < inv_freq.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    inv_freq[i] = inv_freq[i] / factor * ramp + inv_freq[i] * (1 - ramp);
  }
  return inv_freq;
}

double YarnAttentionFactor(const RopeParameters& p, int64_t max_position) {
  if (p.attention_factor) return *p.attention_factor;
  const double factor = FactorOf(p, max_position);
  // As the reference has it: mscale alone changes nothing.
  if (p.mscale != 0 && p.mscale_all_dim != 0) {
    return YarnMscale(factor, p.mscale) / YarnMscale(factor, p.mscale_all_dim);
  }
  return YarnMscale(factor, 1);
}

std::vector<double> Llama3Frequencies(const RopeParameters& p, int64_t dim, int64_t max_position) {
  const double factor = p.factor.value_or(1);
  const double original = static_cast<double>(p.original_max_position.value_or(max_position));
  std::vector<double> inv_freq = PlainFrequencies(p.theta, dim);
  for (double& frequency : inv_freq) {
    const double wavelength = kTwoPi / frequency;
    if (wavelength < original / p.high_freq_factor) continue;
    if (wavelength > original / p.low_freq_factor) {
      frequency /= factor;
      continue;
    }
    const double smooth =
        (original / wavelength - p.low_freq_factor) / (p.high_freq_factor - p.low_freq_factor);
    frequency = (1 - smooth) * frequency / factor + smooth * frequency;
  }
  return inv_freq;
}

std::vector<double> LongropeFrequencies(const RopeParameters& p, int64_t dim, int64_t seq_len,
                                        int64_t max_position) {
  const int64_t original = p.original_max_position.value_or(max_position);
  const std::vector<double>& divisors = seq_len > original ? p.long_factor : p.short_factor;
  TN_CHECK(static_cast<int64_t>(divisors.size()) == dim / 2, "longrope lists fit the rotary dim");
  std::vector<double> inv_freq = PlainFrequencies(p.theta, dim);
  for (size_t i = 0; i < inv_freq.size(); ++i) inv_freq[i] /= divisors[i];
  return inv_freq;
}

double LongropeAttentionFactor(const RopeParameters& p, int64_t max_position) {
  if (p.attention_factor) return *p.attention_factor;
  const double factor = FactorOf(p, max_position);
  if (factor <= 1) return 1;
  const double original = static_cast<double>(p.original_max_position.value_or(max_position));
  return std::sqrt(1 + std::log(factor) / std::log(original));
}

std::vector<double> ProportionalFrequencies(const RopeParameters& p, int64_t dim) {
  std::vector<double> inv_freq = PlainFrequencies(p.theta, dim);
  const double rotated = std::floor(p.partial_rotary_factor * static_cast<double>(dim) / 2);
  for (size_t i = 0; i < inv_freq.size(); ++i) {
    inv_freq[i] = static_cast<double>(i) < rotated ? inv_freq[i] / p.factor.value_or(1) : 0;
  }
  return inv_freq;
}

std::vector<double> Frequencies(const RopeParameters& p, int64_t dim, int64_t seq_len,
                                int64_t max_position) {
  switch (p.type) {
    case RopeType::kDefault:
      break;
    case RopeType::kLinear: {
      std::vector<double> inv_freq = PlainFrequencies(p.theta, dim);
      for (double& frequency : inv_freq) frequency /= p.factor.value_or(1);
      return inv_freq;
    }
    case RopeType::kDynamic:
      return DynamicFrequencies(p, dim, seq_len, max_position);
    case RopeType::kYarn:
      return YarnFrequencies(p, dim, max_position);
    case RopeType::kLlama3:
      return Llama3Frequencies(p, dim, max_position);
    case RopeType::kLongrope:
      return LongropeFrequencies(p, dim, seq_len, max_position);
    case RopeType::kProportional:
      return ProportionalFrequencies(p, dim);
  }
  return PlainFrequencies(p.theta, dim);
}

}  // namespace

double YarnMscale(double factor, double mscale) {
  return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1;
}

int64_t RotaryDim(const RopeParameters& parameters, int64_t head_dim) {
  if (parameters.type == RopeType::kProportional) return head_dim;
  return static_cast<int64_t>(static_cast<double>(head_dim) * parameters.partial_rotary_factor);
}

RopeFrequencies ComputeRope(const RopeParameters& parameters, int64_t rotary_dim, int64_t seq_len,
                            int64_t max_position) {
  TN_CHECK(rotary_dim >= 0 && rotary_dim % 2 == 0, "columns are rotated in pairs");
  std::vector<double> inv_freq = Frequencies(parameters, rotary_dim, seq_len, max_position);
  if (!parameters.divisors.empty()) {
    TN_CHECK(parameters.divisors.size() == inv_freq.size(), "rope divisors fit the rotary dim");
    for (size_t i = 0; i < inv_freq.size(); ++i) inv_freq[i] /= parameters.divisors[i];
  }
  RopeFrequencies result;
  result.inv_freq.assign(inv_freq.begin(), inv_freq.end());
  if (parameters.type == RopeType::kYarn) {
    result.attention_factor = static_cast<float>(YarnAttentionFactor(parameters, max_position));
  } else if (parameters.type == RopeType::kLongrope) {
    result.attention_factor = static_cast<float>(LongropeAttentionFactor(parameters, max_position));
  }
  return result;
}

}  // namespace tenon
