// The way back: which stored tensors a set of canonical ones makes, under which names, and their
// bytes (slices stacked, parts joined, rows permuted as the file wants them). For `convert`;
// reading is tensor_index.h. Pure functions, thread-safe.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/checkpoint/name_table.h"
#include "tenon/checkpoint/tensor_index.h"

namespace tenon {

struct CanonicalTensor {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
};

struct StoredPlan {
  struct Piece {
    std::string canonical;
    Transform transform;
    int64_t slice = 0;
  };
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  std::vector<Piece> pieces;
};

// In the order in which the first piece of each occurs. kRefused: a slice or part is missing, two
// tensors for one place, pieces of different types, shapes that do not fit the transform.
Result<std::vector<StoredPlan>> PlanStored(std::span<const CanonicalTensor> tensors,
                                           const NameTable& table);

// The bytes of one stored tensor; fetch gives the canonical ones, contiguous, as planned.
using FetchTensor = std::function<Result<LoadedTensor>(std::string_view canonical)>;
Result<LoadedTensor> AssembleStored(const StoredPlan& plan, const FetchTensor& fetch);

}  // namespace tenon
