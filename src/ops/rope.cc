#include "tenon/ops/rope.h"

#include "tenon/kernels/table.h"
#include "tenon/ops/rows.h"

namespace tenon {
namespace {

struct AnglesArgs {
  Operand y;
  const RopeFrequencyTable* table = nullptr;
  const KernelTable* kernels = nullptr;
  const int32_t* positions = nullptr;
  const int32_t* regimes = nullptr;
};

void RunAngles(const AnglesArgs& a, const RunContext& context, int64_t begin, int64_t end) {
  const int64_t half = a.table->rotary_dim / 2;
  for (int64_t t = begin; t < end; ++t) {
    const int64_t regime = a.regimes == nullptr ? 0 : a.regimes[t];
    a.kernels->rope_angles(a.positions[t], a.table->inv_freq + regime * half,
                           a.table->attention_factor[regime], half,
                           a.y.For<float>(context.thread) + t * 2 * half);
  }
}

struct RopeArgs {
  Operand x, angles;
  void (*rotate)(float* x, const float* cos_sin, int64_t half) = nullptr;
  RowStrides rows;
  int64_t half = 0;
};

void RunRope(const RopeArgs& a, const RunContext& context, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    a.rotate(a.x.For<float>(context.thread) + a.rows.OffsetOf(r),
             a.angles.For<float>(context.thread) + r / a.rows.heads * 2 * a.half, a.half);
  }
}

}  // namespace

Value RopeAngles(Tape& tape, const RopeFrequencyTable& table, const int32_t* positions,
                 const int32_t* regimes, int64_t num_tokens) {
  const bool everyone = num_tokens <= Tape::kEveryoneRows;
  const Shape shape{num_tokens, table.rotary_dim};
  const Value y =
      everyone ? tape.NewPrivateValue(DType::kF32, shape) : tape.NewValue(DType::kF32, shape);
  RecordBuilder<AnglesArgs> record(tape, "rope_angles", "reference/rope_angles");
  record.args().table = &table;
  record.args().kernels = &tape.kernels();
  record.args().positions = positions;
  record.args().regimes = regimes;
  record.Write(&AnglesArgs::y, y);
  record.Commit<RunAngles>({.items = num_tokens, .everyone = everyone});
  return y;
}

void Rope(Tape& tape, const Value& x, const Value& angles, RopePairing pairing) {
  TN_CHECK(x.dim(0) == angles.dim(0) && x.dim(-1) >= angles.dim(1), "angles of the same tokens");
  const bool interleaved = pairing == RopePairing::kInterleaved;
  RecordBuilder<RopeArgs> record(
      tape, "rope", interleaved ? "reference/rope_interleaved" : "reference/rope_half");
  record.args().rotate = interleaved ? tape.kernels().rope_interleaved : tape.kernels().rope_half;
  record.args().rows = RowsOf(x);
  record.args().half = angles.dim(1) / 2;
  record.Update(&RopeArgs::x, x).Read(&RopeArgs::angles, angles);
  record.Commit<RunRope>({.items = NumRows(x), .grain = 4, .everyone = tape.IsPrivate(x)});
}

}  // namespace tenon
