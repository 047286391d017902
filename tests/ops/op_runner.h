// Records ops over host data and runs them on a team: what every op test needs. Inputs may be
// slices whose surroundings are NaN, and the arena starts as NaN, so that a wrong stride or an
// unwritten result shows. Not for shape mode. One thread.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <deque>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/random_data.h"
#include "support/isa.h"
#include "tenon/ops/kernel_choice.h"
#include "tenon/ops/matmul.h"
#include "tenon/ops/tape.h"
#include "tenon/tensor/buffer.h"

namespace tenon::test {

inline const KernelTable& Kernels() { return KernelsFor(test::TestIsa()); }

// How an input lies in its buffer.
enum class Placement { kContiguous, kSlice, kPrivate };

class OpRunner {
 public:
  explicit OpRunner(int threads = 1) : tape_(Kernels()), team_(threads) {}

  Tape& tape() { return tape_; }

  // A value of `shape` (rank 2 or 3) that holds `data`, filled anew by each run.
  Value Input(const Shape& shape, const std::vector<float>& data,
              Placement placement = Placement::kContiguous) {
    EXPECT_EQ(static_cast<int64_t>(data.size()), shape.elements());
    constexpr int64_t kGap = 3;
    const int64_t gap = placement == Placement::kSlice ? kGap : 0;
    const int64_t rows = shape.dim(0);
    const int64_t width = shape.rank() == 3 ? shape.dim(1) * shape.dim(2) : shape.dim(1);
    const int64_t padded = width + 2 * gap;
    std::vector<float>& host =
        data_.emplace_back(At(rows * padded), std::numeric_limits<float>::quiet_NaN());
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = 0; i < width; ++i) host[At(r * padded + gap + i)] = data[At(r * width + i)];
    }
    const bool everyone = placement == Placement::kPrivate;
    const Shape whole{rows, padded};
    const Value y =
        everyone ? tape_.NewPrivateValue(DType::kF32, whole) : tape_.NewValue(DType::kF32, whole);
    RecordBuilder<FillArgs> record(tape_, "fill", "test");
    record.args().data = host.data();
    record.args().width = padded;
    record.Write(&FillArgs::y, y);
    record.Commit<RunFill>({.items = rows, .everyone = everyone});
    const Value slice = y.Slice(1, gap, gap + width);
    return shape.rank() == 3 ? slice.SplitLast(shape.dim(1), shape.dim(2)) : slice;
  }

  // Keeps `results`, runs `times` times and returns what the last run left in each, row by row.
  std::vector<std::vector<float>> Run(const std::vector<Value>& results, int times = 2) {
    for (const Value& value : results) tape_.Keep(value, "result");
    tape_.Seal(team_.threads());
    arena_ = *Buffer::Allocate(tape_.arena_bytes(), "test");
    scratch_ = *Buffer::Allocate(tape_.scratch_bytes(), "test");
    std::memset(arena_.data(), 0xFF, At(arena_.size()));
    std::memset(scratch_.data(), 0xFF, At(scratch_.size()));
    tape_.Bind(arena_.data(), scratch_.data());
    std::vector<std::vector<float>> last;
    for (int i = 0; i < times; ++i) {
      tape_.Run(team_);
      std::vector<std::vector<float>> now;
      for (const Value& value : results) now.push_back(ReadRows(value));
      if (i > 0) {
        EXPECT_TRUE(SameBits(now, last)) << "a second run differs";
      }
      last = std::move(now);
    }
    return last;
  }

  static bool SameBits(const std::vector<std::vector<float>>& a,
                       const std::vector<std::vector<float>>& b) {
    if (a.size() != b.size()) return false;
    for (size_t i = 0; i < a.size(); ++i) {
      if (a[i].size() != b[i].size()) return false;
      if (!a[i].empty() && std::memcmp(a[i].data(), b[i].data(), a[i].size() * 4) != 0) {
        return false;
      }
    }
    return true;
  }

 private:
  struct FillArgs {
    Operand y;
    const float* data = nullptr;
    int64_t width = 0;
  };
  static void RunFill(const FillArgs& args, const RunContext& context, int64_t begin, int64_t end) {
    if (begin == end || args.width == 0) return;
    std::memcpy(args.y.For<float>(context.thread) + begin * args.width,
                args.data + begin * args.width, At((end - begin) * args.width) * sizeof(float));
  }

  // Rank 2 or 3, any strides; int32 values come out as numbers.
  std::vector<float> ReadRows(const Value& value) const {
    const TensorView view = tape_.ViewOf(value);
    const int64_t heads = value.shape().rank() == 3 ? value.dim(1) : 1;
    std::vector<float> rows;
    for (int64_t t = 0; t < value.dim(0); ++t) {
      for (int64_t h = 0; h < heads; ++h) {
        const std::byte* row = view.data() + t * value.stride_bytes(0) +
                               (value.shape().rank() == 3 ? h * value.stride_bytes(1) : 0);
        for (int64_t i = 0; i < value.dim(-1); ++i) {
          int32_t bits = 0;
          std::memcpy(&bits, row + 4 * i, sizeof bits);
          rows.push_back(value.dtype() == DType::kI32 ? static_cast<float>(bits)
                                                      : std::bit_cast<float>(bits));
        }
      }
    }
    return rows;
  }

  Tape tape_;
  ThreadTeam team_;
  Buffer arena_, scratch_;
  std::deque<std::vector<float>> data_;
};

// Runs what `record` records on teams of one, two and three; the results must be the same bits.
inline std::vector<std::vector<float>> OverTeams(
    const std::function<std::vector<Value>(OpRunner&)>& record) {
  std::vector<std::vector<float>> first;
  for (const int threads : {1, 2, 3}) {
    OpRunner runner(threads);
    const std::vector<Value> results = record(runner);
    std::vector<std::vector<float>> now = runner.Run(results);
    if (threads > 1) {
      EXPECT_TRUE(OpRunner::SameBits(now, first)) << threads << " threads differ";
    }
    if (threads == 1) first = std::move(now);
  }
  return first;
}

inline MatrixRef RefTo(const Weights& w, const float* bias = nullptr) {
  return {.data = w.data(),
          .dtype = w.dtype,
          .rows = w.rows,
          .cols = w.cols,
          .row_bytes = w.row_bytes,
          .bias = bias};
}

}  // namespace tenon::test
