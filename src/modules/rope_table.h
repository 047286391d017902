// RopeTable: the frequencies of one rotary embedding, held as rows ("regimes") that ops read by
// address. Most ropes have one row for all sequences; dynamic NTK and longrope depend on a
// sequence's total length. Layers that rotate alike share one table. Not thread-safe.
#pragma once

#include <vector>

#include "tenon/config/rope_parameters.h"
#include "tenon/modules/load_context.h"
#include "tenon/ops/rope.h"

namespace tenon {

class RopeTable {
 public:
  static constexpr int64_t kRegimes = 64;  // sequences in flight whose lengths may differ

  // rotary_dim: how many columns of a head are rotated.
  RopeTable(const Scope& scope, const RopeParameters& parameters, int64_t rotary_dim,
            int64_t max_position);
  RopeTable(const RopeTable&) = delete;
  RopeTable& operator=(const RopeTable&) = delete;

  // Do the frequencies depend on the sequence's total length?
  bool DependsOnLength() const;
  // Two lengths with equal keys have equal frequencies. Dynamic NTK: a sequence keeps the base of
  // its admission, so the key is asked for once; longrope: crossing a key means recomputing the
  // cache.
  bool FixedAtAdmission() const { return parameters_.type == RopeType::kDynamic; }
  int64_t KeyOf(int64_t seq_len) const;
  // Fills row `regime` for a total length. Row 0 is for short sequences from the start.
  void SetRegime(int64_t regime, int64_t seq_len);

  const RopeFrequencyTable& table() const { return table_; }
  int64_t rotary_dim() const { return table_.rotary_dim; }

 private:
  RopeParameters parameters_;
  int64_t max_position_;
  std::vector<float> inv_freq_;          // [regimes, rotary_dim / 2]
  std::vector<float> attention_factor_;  // [regimes]
  RopeFrequencyTable table_;
};

}  // namespace tenon
