// RopeParameters: what a config says about rotary position embedding, and the frequencies that
// follow. Reads both forms that Hugging Face has used (rope_theta + rope_scaling, and
// rope_parameters, flat or per layer type) and ends in one struct. The rotation itself is
// ops/rope.h. Values and pure functions; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/config/config_reader.h"

namespace tenon {

// Source of names and formulas: Hugging Face modeling_rope_utils.py, ROPE_INIT_FUNCTIONS.
enum class RopeType {
  kDefault,
  kLinear,        // all frequencies divided by a factor (position interpolation)
  kDynamic,       // NTK: the base grows with the sequence
  kYarn,          // Peng et al. 2023
  kLlama3,        // Llama 3.1: only long wavelengths are stretched
  kLongrope,      // Ding et al. 2024: one divisor per frequency, a short and a long list
  kProportional,  // Gemma 4: the first part of the frequencies, zero beyond
};
std::string_view NameOf(RopeType type);

struct RopeParameters {
  RopeType type = RopeType::kDefault;
  double theta = 10000;
  double partial_rotary_factor = 1;  // part of head_dim that is rotated; see RotaryDim
  // Not for kDefault. Null (yarn, longrope): max_position / original_max_position.
  std::optional<double> factor = {};
  // Length the model was trained at: always set for yarn, llama3, longrope.
  std::optional<int64_t> original_max_position = {};
  // yarn, longrope: overrides the factor that follows from `factor`.
  std::optional<double> attention_factor = {};
  double beta_fast = 32;  // yarn
  double beta_slow = 1;
  double mscale = 0;  // yarn; 0: not given
  double mscale_all_dim = 0;
  bool truncate = true;
  double low_freq_factor = 1;  // llama3
  double high_freq_factor = 4;
  std::vector<double> short_factor = {};  // longrope: [rotary_dim / 2]
  std::vector<double> long_factor = {};   // [rotary_dim / 2]
  // Divisors on top of any type, from a GGUF's rope_freqs tensor: [rotary_dim / 2], or none.
  std::vector<double> divisors = {};
  // Multimodal: how many frequencies follow the temporal, height and width position; empty: one
  // position only.
  std::vector<int64_t> mrope_section = {};
  bool mrope_interleaved = false;

  friend bool operator==(const RopeParameters&, const RopeParameters&) = default;
};

// What the reader must know of the rest of the config, and the family's defaults and names.
struct RopeSpec {
  int64_t head_dim = 0;      // of which partial_rotary_factor is a part; MLA: qk_rope_head_dim
  int64_t max_position = 0;  // max_position_embeddings
  // When no key says it; none: a key is required. No number fits every family.
  std::optional<double> theta = {};
  double partial_rotary_factor = 1;
  Keys theta_keys = "rope_theta";  // at the top level; the dictionary's own keys win
  Keys partial_keys = "partial_rotary_factor";
  // Names under which the dictionary may hold one entry per layer type.
  std::vector<std::string> layer_types = {"full_attention", "sliding_attention"};
};

// Reads the rope of a model whose layers all rotate alike. A dictionary per layer type that has
// more than one is an error here. Errors are left in the reader.
Sourced<RopeParameters> ReadRope(ConfigReader& reader, const RopeSpec& spec);

// Is the rope given per layer type?
bool HasRopePerLayerType(const ConfigReader& reader, const RopeSpec& spec);
// The rope of one layer type; from a flat dictionary, what it says. Null value: this type does not
// rotate (its entry is null).
Sourced<std::optional<RopeParameters>> ReadRopeOf(ConfigReader& reader, const RopeSpec& spec,
                                                  std::string_view layer_type);

// How many columns of a head are rotated: int(head_dim * partial_rotary_factor), all for
// kProportional.
int64_t RotaryDim(const RopeParameters& parameters, int64_t head_dim);

struct RopeFrequencies {
  std::vector<float> inv_freq;  // [rotary_dim / 2], radians per position
  float attention_factor = 1;   // multiplies cosines and sines
};
// seq_len: total length of the sequence; matters for dynamic (from max_position on) and longrope
// (beyond original_max_position). rotary_dim: even. Computed in fp64, rounded once.
RopeFrequencies ComputeRope(const RopeParameters& parameters, int64_t rotary_dim, int64_t seq_len,
                            int64_t max_position);

// 1 + 0.1 * mscale * ln(factor), 1 for factor <= 1 (YaRN, eq. 22; Hugging Face yarn_get_mscale).
// MLA multiplies its softmax scale by the square of YarnMscale(factor, mscale_all_dim).
double YarnMscale(double factor, double mscale);

}  // namespace tenon
