// How one model is divided over the ranks of a world: tensor parallelism (each rank has a share of
// the rows or columns of a matrix) and pipeline parallelism (each stage has a run of layers). Part
// of construction: shapes, sources and bytes are those of one rank. Only a world of one computes
// yet. Values and pure functions; thread-safe.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include "tenon/tensor/shape.h"

namespace tenon {

struct ParallelMapping {
  int tp = 1;    // ranks that share each layer
  int pp = 1;    // stages
  int rank = 0;  // [0, tp * pp): stage after stage

  int world() const { return tp * pp; }
  int tp_rank() const { return rank % tp; }
  int stage() const { return rank / tp; }
};

// A stretch of one dimension of a stored tensor. full = 0: the whole of it.
struct Share {
  int64_t begin = 0;
  int64_t size = 0;
  int64_t full = 0;

  bool is_whole() const { return full == 0 || size == full; }
};

// This rank's share of `full` numbers that belong together in `units` (heads; 0: each for itself).
// Fewer units than ranks: several ranks have the same one. Nothing: the units cannot be shared out
// evenly.
bool DivideEvenly(const ParallelMapping& mapping, int64_t full, int64_t units, Share& share);
// As even as it goes, the first ranks one more: vocabularies.
Share DivideRoughly(const ParallelMapping& mapping, int64_t full);
// The layers of this rank's stage: consecutive, the first stages one more.
Share LayersOfStage(const ParallelMapping& mapping, int64_t layers);
// Worlds up to 64 over which `units` can be shared out, for errors: "1, 2, 4, 8".
std::string WorldsFor(int64_t units);

// The shape of a parameter, and which part of the stored tensor it is.
struct PartShape {
  PartShape(const Shape& whole) : shape(whole) {}  // NOLINT(google-explicit-constructor)
  PartShape(std::initializer_list<int64_t> whole) : shape(whole) {}  // NOLINT
  // [rows, cols] of which rows or columns are a share.
  PartShape(int64_t rows, int64_t cols, const Share& row_share, const Share& col_share);

  // Of the stored tensor.
  Shape Full() const;

  Shape shape;
  Share rows, cols;
};

// A vector of `size` numbers, which may be a share. It stands as the only column of a matrix:
// shares are of rows and columns.
PartShape VectorPart(int64_t size, const Share& share);

}  // namespace tenon
