#include "tenon/modules/parallel.h"

#include <algorithm>

namespace tenon {

bool DivideEvenly(const ParallelMapping& mapping, int64_t full, int64_t units, Share& share) {
  const int64_t ranks = mapping.tp;
  const int64_t rank = mapping.tp_rank();
  if (units == 0) units = full;
  const int64_t unit = full / units;
  if (units % ranks == 0) {
    share = {rank * (units / ranks) * unit, units / ranks * unit, full};
    return true;
  }
  if (units < ranks && ranks % units == 0) {
    share = {rank / (ranks / units) * unit, unit, full};
    return true;
  }
  return false;
}

namespace {

Share Stretch(int64_t full, int64_t parts, int64_t part) {
  const int64_t least = full / parts;
  const int64_t longer = full % parts;
  return {part * least + std::min(part, longer), least + (part < longer ? 1 : 0), full};
}

}  // namespace

Share DivideRoughly(const ParallelMapping& mapping, int64_t full) {
  return Stretch(full, mapping.tp, mapping.tp_rank());
}

Share LayersOfStage(const ParallelMapping& mapping, int64_t layers) {
  return Stretch(layers, mapping.pp, mapping.stage());
}

std::string WorldsFor(int64_t units) {
  constexpr int64_t kMost = 64;
  std::string text;
  for (int64_t world = 1; world <= kMost; ++world) {
    if (units % world != 0) continue;
    text += (text.empty() ? "" : ", ") + std::to_string(world);
  }
  return text;
}

PartShape::PartShape(int64_t row_count, int64_t col_count, const Share& row_share,
                     const Share& col_share)
    : shape({row_count, col_count}), rows(row_share), cols(col_share) {}

Shape PartShape::Full() const {
  if (rows.is_whole() && cols.is_whole()) return shape;
  return {rows.is_whole() ? shape.dim(0) : rows.full, cols.is_whole() ? shape.dim(1) : cols.full};
}

PartShape VectorPart(int64_t size, const Share& share) {
  return share.is_whole() ? PartShape({size}) : PartShape(size, 1, share, {});
}

}  // namespace tenon
