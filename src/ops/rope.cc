#include "tenon/ops/rope.h"

#include "tenon/kernels/table.h"
#include "tenon/ops/rows.h"

namespace tenon {
namespace {

struct AnglesArgs {
  Operand y;
  const RopeFrequencyTable* table = nullptr;
  const RopeKernels* kernels = nullptr;
  const int32_t* positions = nullptr;
  const int32_t* regimes = nullptr;
};

void RunAngles(const AnglesArgs& a, const RunContext& context, int64_t begin, int64_t end) {
  const int64_t half = a.table->rotary_dim / 2;
  for (int64_t t = begin; t < end; ++t) {
    const int64_t regime = a.regimes == nullptr ? 0 : a.regimes[t];
    a.kernels->angles.run(a.positions[t], a.table->inv_freq + regime * half,
                          a.table->attention_factor[regime], half,
                          a.y.For<float>(context.thread) + t * 2 * half);
  }
}

struct RopeArgs {
  Operand x, y;
  Rotation rotation;
  RowStrides x_rows, y_rows;
  int64_t width = 0;
};

const Kernel<RotateFunction>& KernelOf(const Tape& tape, RopePairing pairing) {
  const RopeKernels& kernels = tape.kernels().rope;
  return pairing == RopePairing::kInterleaved ? kernels.rotate_interleaved : kernels.rotate_half;
}

void RunRope(const RopeArgs& a, const RunContext& context, int64_t begin, int64_t end) {
  const float* x = a.x.For<float>(context.thread);
  float* y = a.y.For<float>(context.thread);
  for (int64_t r = begin; r < end; ++r) {
    a.rotation.Run(context.thread, r / a.x_rows.heads, x + a.x_rows.OffsetOf(r),
                   y + a.y_rows.OffsetOf(r), a.width);
  }
}

// y is x (in place) or another value of its shape.
void RecordRope(Tape& tape, const Value& x, const Value& angles, RopePairing pairing,
                const Value& y) {
  TN_CHECK(IsRows(x) && IsMatrix(angles) && angles.is_contiguous(), "fp32 heads and their angles");
  TN_CHECK(x.dim(0) == angles.dim(0) && x.dim(-1) >= angles.dim(1), "angles of the same tokens");
  RecordBuilder<RopeArgs> record(tape, "rope", KernelOf(tape, pairing).name);
  record.args().rotation = RotationBy(tape, angles, pairing);
  record.args().x_rows = RowsOf(x);
  record.args().y_rows = RowsOf(y);
  record.args().width = x.dim(-1);
  record.Read(&RopeArgs::x, x).ReadInto(record.args().rotation.angles, angles);
  record.Write(&RopeArgs::y, y);
  record.Commit<RunRope>(
      {.items = NumRows(x), .grain = RowGrain(NumRows(x)), .everyone = tape.IsPrivate(y)});
}

}  // namespace

Value RopeAngles(Tape& tape, const RopeFrequencyTable& table, const int32_t* positions,
                 const int32_t* regimes, int64_t num_tokens) {
  TN_CHECK(table.rotary_dim % 2 == 0, "pairs of columns");
  const auto [y, everyone] = NewRowResult(tape, DType::kF32, Shape{num_tokens, table.rotary_dim});
  RecordBuilder<AnglesArgs> record(tape, "rope_angles", tape.kernels().rope.angles.name);
  record.args().table = &table;
  record.args().kernels = &tape.kernels().rope;
  record.args().positions = positions;
  record.args().regimes = regimes;
  record.Write(&AnglesArgs::y, y);
  record.Commit<RunAngles>(
      {.items = num_tokens, .grain = RowGrain(num_tokens), .everyone = everyone});
  return y;
}

Rotation RotationBy(const Tape& tape, const Value& angles, RopePairing pairing) {
  Rotation rotation;
  rotation.rotate = KernelOf(tape, pairing).run;
  rotation.half = angles.dim(1) / 2;
  return rotation;
}

void Rope(Tape& tape, const Value& x, const Value& angles, RopePairing pairing) {
  RecordRope(tape, x, angles, pairing, x);
}

Value Rotated(Tape& tape, const Value& x, const Value& angles, RopePairing pairing) {
  const bool copies = WorthEveryone(x.shape()) && !tape.IsPrivate(x);
  const Value y = copies ? tape.NewPrivateValue(DType::kF32, x.shape()) : x;
  RecordRope(tape, x, angles, pairing, y);
  return y;
}

}  // namespace tenon
