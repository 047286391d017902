// A Llama-like layer at one token: how often the team meets, and that the answer depends on neither
// the team nor the form of the rope. And the shape mode: every op records and seals with no weight.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "ops/op_runner.h"
#include "tenon/ops/activation.h"
#include "tenon/ops/moe.h"
#include "tenon/ops/norm.h"
#include "tenon/ops/per_head.h"
#include "tenon/ops/recurrent.h"
#include "tenon/ops/rope.h"

namespace tenon {
namespace {

using test::Floats;
using test::OpRunner;
using test::OverTeams;
using test::RandomWeights;
using test::RefTo;
using test::Weights;

constexpr int64_t kHidden = 64, kHeads = 4, kKvHeads = 2, kHeadDim = 16, kInner = 160;

// Stands for attention: each head of q times the sum of its k and v. Items are heads.
struct AttentionArgs {
  Operand q, k, v, y;
  int64_t num_tokens = 0;
  int64_t q_row = 0, k_row = 0, v_row = 0;  // floats
};
void RunAttention(const AttentionArgs& a, const RunContext& context, int64_t begin, int64_t end) {
  for (int64_t h = begin; h < end; ++h) {
    const int64_t kv = h / (kHeads / kKvHeads);
    for (int64_t t = 0; t < a.num_tokens; ++t) {
      const float* q = a.q.For<float>(context.thread) + t * a.q_row + h * kHeadDim;
      const float* k = a.k.For<float>(context.thread) + t * a.k_row + kv * kHeadDim;
      const float* v = a.v.For<float>(context.thread) + t * a.v_row + kv * kHeadDim;
      float* y = a.y.For<float>(context.thread) + (t * kHeads + h) * kHeadDim;
      for (int64_t i = 0; i < kHeadDim; ++i) y[i] = q[i] * k[i] + v[i];
    }
  }
}
Value Attention(Tape& tape, const Value& q, const Value& k, const Value& v) {
  const Value y = tape.NewValue(DType::kF32, {q.dim(0), kHeads * kHeadDim});
  RecordBuilder<AttentionArgs> record(tape, "attention", "test");
  record.args().num_tokens = q.dim(0);
  record.args().q_row = q.stride_bytes(0) / 4;
  record.args().k_row = k.stride_bytes(0) / 4;
  record.args().v_row = v.stride_bytes(0) / 4;
  record.Read(&AttentionArgs::q, q).Read(&AttentionArgs::k, k).Read(&AttentionArgs::v, v);
  record.Write(&AttentionArgs::y, y);
  record.Commit<RunAttention>({.items = kHeads});
  return y;
}

struct Layer {
  Weights q = RandomWeights(DType::kF32, kHeads* kHeadDim, kHidden, 1);
  Weights k = RandomWeights(DType::kF32, kKvHeads* kHeadDim, kHidden, 2);
  Weights v = RandomWeights(DType::kBF16, kKvHeads* kHeadDim, kHidden, 3);  // as files mix types
  Weights o = RandomWeights(DType::kF32, kHidden, kHeads* kHeadDim, 4);
  Weights gate = RandomWeights(DType::kQ4_1, kInner, kHidden, 5);
  Weights up = RandomWeights(DType::kQ4_1, kInner, kHidden, 6);
  Weights down = RandomWeights(DType::kQ8_0, kHidden, kInner, 7);
  std::vector<MatrixRef> qkv_refs = {RefTo(q), RefTo(k), RefTo(v)};
  std::vector<MatrixRef> o_refs = {RefTo(o)};
  std::vector<MatrixRef> gate_up_refs = {RefTo(gate), RefTo(up)};
  std::vector<MatrixRef> down_refs = {RefTo(down)};
  std::vector<float> norm_weight = Floats(kHidden, 8);
  NormWeights norm{NormKind::kRms, norm_weight.data(), nullptr, 0.01f, 0};
  std::vector<float> inv_freq = Floats(kHeadDim / 2, 9);
  float attention_factor = 1;
  RopeFrequencyTable rope{inv_freq.data(), &attention_factor, kHeadDim};
};

enum class RopeForm { kRotated, kInPlace };

struct Stream {
  Value base, addend;
};

void RecordLayer(Tape& tape, const Layer& layer, const Value& angles, RopeForm form,
                 Stream& stream) {
  const NormedSum before = AddNorm(tape, layer.norm, stream.base, std::array{stream.addend});
  const Value qkv = Matmul(tape, layer.qkv_refs, before.normed);
  const int64_t q_width = kHeads * kHeadDim;
  const int64_t k_width = kKvHeads * kHeadDim;
  Value q = qkv.Slice(1, 0, q_width).SplitLast(kHeads, kHeadDim);
  Value k = qkv.Slice(1, q_width, q_width + k_width).SplitLast(kKvHeads, kHeadDim);
  const Value v = qkv.Slice(1, q_width + k_width, q_width + 2 * k_width);
  if (form == RopeForm::kInPlace) {
    Rope(tape, q, angles, RopePairing::kHalf);
    Rope(tape, k, angles, RopePairing::kHalf);
  } else {
    q = Rotated(tape, q, angles, RopePairing::kHalf);
    k = Rotated(tape, k, angles, RopePairing::kHalf);
  }
  const Value o = Matmul(tape, layer.o_refs, Attention(tape, q, k, v));
  const NormedSum after = AddNorm(tape, layer.norm, before.sum, std::array{o});
  const Value both = Matmul(tape, layer.gate_up_refs, after.normed);
  const Value inner = GatedActivate(tape, Activation::kSilu, both.Slice(1, 0, kInner),
                                    both.Slice(1, kInner, 2 * kInner));
  stream = {after.sum, Matmul(tape, layer.down_refs, inner)};
}

struct ModelRun {
  int layers = 1;
  int64_t num_tokens = 1;
  const int32_t* positions = nullptr;  // [num_tokens]; null: shape mode
  RopeForm form = RopeForm::kRotated;
};

Value RecordModel(OpRunner& run, const Layer& layer, const ModelRun& model) {
  const Shape shape{model.num_tokens, kHidden};
  Stream stream{run.Input(shape, Floats(shape.elements(), 20)),
                run.Input(shape, Floats(shape.elements(), 21))};
  const Value angles =
      RopeAngles(run.tape(), layer.rope, model.positions, nullptr, model.num_tokens);
  for (int l = 0; l < model.layers; ++l) {
    RecordLayer(run.tape(), layer, angles, model.form, stream);
  }
  return Add(run.tape(), stream.base, std::array{stream.addend});
}

int MeetingsPerLayer(RopeForm form) {
  const Layer layer;
  const auto meetings = [&](int layers) {
    OpRunner run(2);
    RecordModel(run, layer, {.layers = layers, .form = form});
    run.tape().Seal(2);
    return run.tape().meetings();
  };
  EXPECT_EQ(meetings(7) - meetings(3), 4 * (meetings(3) - meetings(2)));
  return meetings(3) - meetings(2);
}

TEST(Layer, AtMostFiveMeetings) {
  EXPECT_LE(MeetingsPerLayer(RopeForm::kRotated), 5);
  // In place the rope writes what all threads read: one more.
  EXPECT_LE(MeetingsPerLayer(RopeForm::kInPlace), 6);
}

TEST(Layer, AnyTeamAndAnyRopeForm) {
  const Layer layer;
  const std::vector<int32_t> positions = {5, 6, 7, 0, 1};
  for (const int64_t num_tokens : {0, 1, 5}) {
    std::vector<std::vector<float>> answers;
    for (const RopeForm form : {RopeForm::kRotated, RopeForm::kInPlace}) {
      answers.push_back(OverTeams([&](OpRunner& run) {
        return std::vector{RecordModel(run, layer, {2, num_tokens, positions.data(), form})};
      })[0]);
    }
    EXPECT_EQ(answers[0], answers[1]);
    for (const float value : answers[0]) ASSERT_TRUE(std::isfinite(value));
  }
}

// A token's answer is the same bits alone and in a batch: the one-token forms compute the same.
TEST(Layer, BatchInvariance) {
  const Layer layer;
  const std::vector<int32_t> positions = {5, 6, 7};
  const auto last_row = [&](int64_t num_tokens) {
    OpRunner run(2);
    const Shape shape{num_tokens, kHidden};
    std::vector<float> rows = Floats(3 * kHidden, 20);
    rows.resize(static_cast<size_t>(num_tokens * kHidden));
    Stream stream{run.Input(shape, rows), run.Input(shape, rows)};
    const Value angles = RopeAngles(run.tape(), layer.rope, positions.data(), nullptr, num_tokens);
    RecordLayer(run.tape(), layer, angles, RopeForm::kRotated, stream);
    std::vector<float> all = run.Run({stream.addend})[0];
    all.resize(kHidden);  // the first token
    return all;
  };
  EXPECT_EQ(last_row(1), last_row(3));
}

// What Plan does: no weight has bytes, no id or position is there, and nothing is run.
TEST(ShapeMode, EveryOpRecordsAndSeals) {
  for (const int64_t num_tokens : {0, 1, 6}) {
    Tape tape(test::Kernels());
    const auto matrix = [](int64_t rows, int64_t cols, DType dtype = DType::kQ8_0) {
      return MatrixRef{
          .dtype = dtype, .rows = rows, .cols = cols, .row_bytes = RowBytes(dtype, cols)};
    };
    const NormWeights norm;
    const MatrixRef table = matrix(100, 64);
    const Value x = Embed(tape, table, nullptr, num_tokens, 2.0f);
    const NormedSum sum = AddNorm(tape, norm, x, std::array{x});
    const std::vector<MatrixRef> qkv_refs = {matrix(64, 64), matrix(32, 64, DType::kF16)};
    const Value qkv = Matmul(tape, qkv_refs, sum.normed);
    const RopeFrequencyTable rope{nullptr, nullptr, 16};
    const Value angles = RopeAngles(tape, rope, nullptr, nullptr, num_tokens);
    const Value q = qkv.Slice(1, 0, 64).SplitLast(4, 16);
    NormInPlace(tape, norm, q);
    Rope(tape, q, angles, RopePairing::kInterleaved);
    const Value rotated = Rotated(tape, q, angles, RopePairing::kHalf);
    const std::vector<MatrixRef> heads(4, matrix(8, 16, DType::kF32));
    const Value wide = MatmulPerHead(tape, heads, rotated, 16);
    CopyInto(tape, rotated, wide.Slice(2, 8, 24));
    const Value gated = GatedNorm(tape, norm, sum.sum, sum.normed, 32);
    const Value active = GatedActivate(tape, Activation::kGelu, gated, sum.sum);
    const Value scaled =
        Scale(tape, SoftCap(tape, Activate(tape, Activation::kTanh, active), 3), 2);
    RoutingSpec spec;
    spec.experts = 64;
    spec.top_k = 3;
    const std::vector<MatrixRef> in(64, matrix(32, 64)), out(64, matrix(64, 32));
    const ExpertWeights experts{in, in, out, Activation::kSilu};
    const Value mixed = ApplyExperts(tape, experts, Route(tape, spec, scaled), scaled);
    const CausalConvSpec conv{.channels = 64, .width = 4};
    const StatePool pool;
    const Value convolved = CausalConv(tape, conv, mixed, {}, pool);
    const SelectiveScanSpec scan{.heads = 4, .head_dim = 16, .groups = 2, .state_size = 16};
    const Value y = SelectiveScan(
        tape, scan, {convolved, qkv.Slice(1, 0, 32), qkv.Slice(1, 32, 64), qkv.Slice(1, 64, 68)},
        {}, pool);
    GatherRows(tape, Norm(tape, norm, Multiply(tape, y, x)), nullptr, 1);
    tape.Seal(3);
    EXPECT_GT(tape.arena_bytes(), 0);
    EXPECT_GT(tape.scratch_bytes(), 0);
    EXPECT_EQ(tape.scratch_bytes() % (3 * Buffer::kAlignment), 0);
    for (const Tape::Record& record : tape.records()) {
      EXPECT_FALSE(std::string(record.op).empty());
      EXPECT_FALSE(std::string(record.kernel).empty()) << record.op;
    }
  }
}

}  // namespace
}  // namespace tenon
