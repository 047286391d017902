#include "tenon/ops/recurrent.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>
#include <limits>
#include <vector>

#include "ops/op_runner.h"
#include "tenon/ops/per_head.h"

namespace tenon {
namespace {

using test::At;
using test::D;
using test::Floats;
using test::OpRunner;
using test::Placement;

constexpr int kSlots = 4;

// A pool of states that starts as NaN: only a fresh run may ignore it. Slots have a gap after them.
struct Pool {
  explicit Pool(int64_t state_bytes)
      : floats(At(kSlots * (state_bytes / 4 + 5)), std::numeric_limits<float>::quiet_NaN()),
        pool{reinterpret_cast<std::byte*>(floats.data()), state_bytes + 20} {}
  std::vector<float> floats;
  StatePool pool;
};

// One step: runs of several sequences, in this order. Their rows are consecutive.
struct Step {
  std::vector<SequenceRun> runs;
  int64_t rows = 0;
};

// Steps after which all that is left is fed: small and shrunk cases draw nothing but zeros.
constexpr size_t kRandomSteps = 12;

// Random steps that together feed `lengths[s]` rows of sequence s, s in slot kSlots - 1 - s.
std::vector<Step> RandomSteps(const std::vector<int>& lengths) {
  std::vector<int> fed(lengths.size());
  std::vector<bool> started(lengths.size());
  std::vector<Step> steps;
  for (bool more = true; more;) {
    Step step;
    more = false;
    for (size_t s = 0; s < lengths.size(); ++s) {
      const int left = lengths[s] - fed[s];
      const int rows = steps.size() < kRandomSteps ? *rc::gen::inRange(0, left + 1) : left;
      more |= rows < left;
      if (rows == 0 && *rc::gen::arbitrary<bool>()) continue;  // else: a run without rows
      step.runs.push_back({static_cast<int32_t>(step.rows), static_cast<int32_t>(step.rows + rows),
                           static_cast<int32_t>(kSlots - 1 - static_cast<int>(s)), !started[s]});
      started[s] = true;
      fed[s] += rows;
      step.rows += rows;
    }
    steps.push_back(step);
  }
  return steps;
}

size_t SequenceOf(const SequenceRun& run) { return static_cast<size_t>(kSlots - 1 - run.slot); }

struct ConvCase {
  int64_t channels = 70;  // more than one grain
  int64_t width = 4;
  std::vector<float> weight = Floats(70 * 4, 1);
  std::vector<float> bias = Floats(70, 2);
  CausalConvSpec spec{channels, width, weight.data(), bias.data(), Activation::kSilu};

  void SetWidth(int64_t taps) {
    width = taps;
    weight = Floats(channels * taps, 1);
    spec.width = taps;
    spec.weight = weight.data();
  }
  // Row t of a sequence whose rows are x, in double.
  double At(const std::vector<float>& x, int64_t t, int64_t c) const {
    double sum = D(bias[test::At(c)]);
    for (int64_t back = 0; back < width && back <= t; ++back) {
      sum += D(weight[test::At(c * width + width - 1 - back)]) *
             D(x[test::At((t - back) * channels + c)]);
    }
    return sum / (1 + std::exp(-sum));
  }
};

// However a sequence is cut into steps and mixed with others, it gets what it would get alone and
// whole. Runs are longer and shorter than the taps.
TEST(CausalConv, AnySplitEqualsBruteForce) {
  EXPECT_TRUE(rc::check([] {
    ConvCase conv;
    conv.SetWidth(*rc::gen::inRange(1, 6));
    const auto lengths = *rc::gen::container<std::vector<int>>(3, rc::gen::inRange(0, 12));
    std::vector<std::vector<float>> x;
    for (size_t s = 0; s < lengths.size(); ++s) {
      x.push_back(Floats(lengths[s] * conv.channels, static_cast<uint32_t>(10 + s)));
    }
    Pool pool(StateBytesOf(conv.spec));
    std::vector<int64_t> done(lengths.size());
    const int threads = *rc::gen::inRange(1, 4);
    for (const Step& step : RandomSteps(lengths)) {
      std::vector<float> input;
      for (const SequenceRun& run : step.runs) {
        const std::vector<float>& rows = x[SequenceOf(run)];
        const auto at = rows.begin() + done[SequenceOf(run)] * conv.channels;
        input.insert(input.end(), at, at + (run.end - run.begin) * conv.channels);
      }
      const auto count = static_cast<int32_t>(step.runs.size());
      OpRunner runner(threads);
      const Value y =
          CausalConv(runner.tape(), conv.spec,
                     runner.Input(Shape{step.rows, conv.channels}, input, Placement::kSlice),
                     {step.runs.data(), &count}, pool.pool);
      const std::vector<float> got = runner.Run({y}, 1)[0];
      for (const SequenceRun& run : step.runs) {
        int64_t& t = done[SequenceOf(run)];
        for (int64_t row = run.begin; row < run.end; ++row, ++t) {
          for (int64_t c = 0; c < conv.channels; ++c) {
            const double expected = conv.At(x[SequenceOf(run)], t, c);
            RC_ASSERT(std::abs(D(got[At(row * conv.channels + c)]) - expected) < 3e-6);
          }
        }
      }
    }
  }));
}

struct ScanCase {
  std::vector<float> a_log = Floats(4, 1);
  std::vector<float> d = Floats(4, 2);
  std::vector<float> dt_bias = Floats(4, 3);
  SelectiveScanSpec spec{4, 3, 2, 5, a_log.data(), d.data(), dt_bias.data(), 0.01f, INFINITY};
  static constexpr int64_t kX = 12, kBc = 10, kDt = 4;
  static constexpr int64_t kRow = kX + 2 * kBc + kDt;  // x, b, c, dt side by side

  // All rows of one sequence, [rows, kRow] -> [rows, kX], in double.
  std::vector<double> Whole(const std::vector<float>& rows) const {
    std::vector<double> state(4 * 3 * 5);
    std::vector<double> y;
    for (size_t t = 0; t < rows.size() / kRow; ++t) {
      const float* row = rows.data() + t * kRow;
      for (size_t h = 0; h < 4; ++h) {
        const size_t group = h / 2;
        double dt = std::log1p(std::exp(D(row[kX + 2 * kBc + At(int64_t(h))]) + D(dt_bias[h])));
        dt = std::max(dt, 0.01);
        const double keep = std::exp(-std::exp(D(a_log[h])) * dt);
        for (size_t i = 0; i < 3; ++i) {
          const double x = D(row[h * 3 + i]);
          double sum = D(d[h]) * x;
          for (size_t s = 0; s < 5; ++s) {
            double& hs = state[(h * 3 + i) * 5 + s];
            hs = keep * hs + dt * x * D(row[kX + group * 5 + s]);
            sum += hs * D(row[kX + kBc + group * 5 + s]);
          }
          y.push_back(sum);
        }
      }
    }
    return y;
  }
};

TEST(SelectiveScan, AnySplitEqualsBruteForce) {
  EXPECT_TRUE(rc::check([] {
    const ScanCase scan;
    const auto lengths = *rc::gen::container<std::vector<int>>(3, rc::gen::inRange(0, 9));
    std::vector<std::vector<float>> rows;
    std::vector<std::vector<double>> expected;
    for (size_t s = 0; s < lengths.size(); ++s) {
      rows.push_back(Floats(lengths[s] * ScanCase::kRow, static_cast<uint32_t>(20 + s)));
      expected.push_back(scan.Whole(rows.back()));
    }
    Pool pool(StateBytesOf(scan.spec));
    std::vector<int64_t> done(lengths.size());
    const int threads = *rc::gen::inRange(1, 4);
    for (const Step& step : RandomSteps(lengths)) {
      std::vector<float> input;
      for (const SequenceRun& run : step.runs) {
        const auto at = rows[SequenceOf(run)].begin() + done[SequenceOf(run)] * ScanCase::kRow;
        input.insert(input.end(), at, at + (run.end - run.begin) * ScanCase::kRow);
      }
      const auto count = static_cast<int32_t>(step.runs.size());
      OpRunner runner(threads);
      const Value all = runner.Input(Shape{step.rows, ScanCase::kRow}, input);
      const int64_t b = ScanCase::kX;
      const int64_t c = b + ScanCase::kBc;
      const int64_t dt = c + ScanCase::kBc;
      const Value y = SelectiveScan(runner.tape(), scan.spec,
                                    {all.Slice(1, 0, b), all.Slice(1, b, c), all.Slice(1, c, dt),
                                     all.Slice(1, dt, ScanCase::kRow)},
                                    {step.runs.data(), &count}, pool.pool);
      const std::vector<float> got = runner.Run({y}, 1)[0];
      for (const SequenceRun& run : step.runs) {
        int64_t& t = done[SequenceOf(run)];
        for (int64_t row = run.begin; row < run.end; ++row, ++t) {
          for (int64_t i = 0; i < ScanCase::kX; ++i) {
            const double want = expected[SequenceOf(run)][At(t * ScanCase::kX + i)];
            RC_ASSERT(std::abs(D(got[At(row * ScanCase::kX + i)]) - want) < 1e-5);
          }
        }
      }
    }
  }));
}

struct DeltaCase {
  static constexpr int64_t kKeyHeads = 2, kShared = 2, kKey = 3, kValue = 5;
  static constexpr int64_t kGroup = 2 * kKey + kShared * kValue;  // q, k, v of a key head
  static constexpr int64_t kQkv = kKeyHeads * kGroup;
  static constexpr int64_t kGates = 2 * kKeyHeads * kShared;  // per key head b, dt
  static constexpr int64_t kRow = kQkv + kGates;
  static constexpr int64_t kY = kKeyHeads * kShared * kValue;
  std::vector<float> a_log = Floats(kKeyHeads * kShared, 1);
  std::vector<float> dt_bias = Floats(kKeyHeads * kShared, 2);
  GatedDeltaSpec spec{kKeyHeads, kKeyHeads* kShared, kKey, kValue, a_log.data(), dt_bias.data()};

  static std::vector<double> Unit(const float* x) {
    double squares = 1e-6;
    for (int64_t i = 0; i < kKey; ++i) squares += D(x[i]) * D(x[i]);
    std::vector<double> y;
    for (int64_t i = 0; i < kKey; ++i) y.push_back(D(x[i]) / std::sqrt(squares));
    return y;
  }
  // All rows of one sequence, [rows, kRow] -> [rows, kY], in double.
  std::vector<double> Whole(const std::vector<float>& rows) const {
    std::vector<double> states(At(spec.value_heads * kKey * kValue));
    std::vector<double> y;
    for (size_t t = 0; t < rows.size() / kRow; ++t) {
      const float* row = rows.data() + t * kRow;
      for (int64_t h = 0; h < spec.value_heads; ++h) {
        const float* group = row + h / kShared * kGroup;
        const float* gates = row + kQkv + h / kShared * 2 * kShared + h % kShared;
        Head(At(h), group, group + 2 * kKey + h % kShared * kValue, gates,
             states.data() + h * kKey * kValue, y);
      }
    }
    return y;
  }

 private:
  // gates: b, and kShared after it dt. Appends to y.
  void Head(size_t h, const float* group, const float* v, const float* gates, double* state,
            std::vector<double>& y) const {
    const std::vector<double> q = Unit(group);
    const std::vector<double> k = Unit(group + kKey);
    const double dt = std::log1p(std::exp(D(gates[kShared]) + D(dt_bias[h])));
    const double keep = std::exp(-std::exp(D(a_log[h])) * dt);
    for (int64_t j = 0; j < kValue; ++j) {
      double stored = 0;
      double out = 0;
      for (int64_t i = 0; i < kKey; ++i) stored += keep * state[i * kValue + j] * k[At(i)];
      const double correction = (D(v[j]) - stored) / (1 + std::exp(-D(gates[0])));
      for (int64_t i = 0; i < kKey; ++i) {
        double& s = state[i * kValue + j];
        s = keep * s + k[At(i)] * correction;
        out += s * q[At(i)] / std::sqrt(static_cast<double>(kKey));
      }
      y.push_back(out);
    }
  }
};

TEST(GatedDelta, AnySplitEqualsBruteForce) {
  EXPECT_TRUE(rc::check([] {
    const DeltaCase delta;
    constexpr int64_t kKey = DeltaCase::kKey;
    const auto lengths = *rc::gen::container<std::vector<int>>(3, rc::gen::inRange(0, 9));
    std::vector<std::vector<float>> rows;
    std::vector<std::vector<double>> expected;
    for (size_t s = 0; s < lengths.size(); ++s) {
      rows.push_back(Floats(lengths[s] * DeltaCase::kRow, static_cast<uint32_t>(30 + s)));
      expected.push_back(delta.Whole(rows.back()));
    }
    Pool pool(StateBytesOf(delta.spec));
    std::vector<int64_t> done(lengths.size());
    const int threads = *rc::gen::inRange(1, 4);
    for (const Step& step : RandomSteps(lengths)) {
      std::vector<float> input;
      for (const SequenceRun& run : step.runs) {
        const auto at = rows[SequenceOf(run)].begin() + done[SequenceOf(run)] * DeltaCase::kRow;
        input.insert(input.end(), at, at + (run.end - run.begin) * DeltaCase::kRow);
      }
      const auto count = static_cast<int32_t>(step.runs.size());
      OpRunner runner(threads);
      const Value all = runner.Input(Shape{step.rows, DeltaCase::kRow}, input);
      const Value groups =
          all.Slice(1, 0, DeltaCase::kQkv).SplitLast(DeltaCase::kKeyHeads, DeltaCase::kGroup);
      const Value gates = all.Slice(1, DeltaCase::kQkv, DeltaCase::kRow)
                              .SplitLast(DeltaCase::kKeyHeads, 2 * DeltaCase::kShared);
      // v's heads must be evenly spaced: they are not within the groups.
      const Value v = runner.tape().NewValue(
          DType::kF32, {step.rows, delta.spec.value_heads, DeltaCase::kValue});
      CopyInto(
          runner.tape(), groups.Slice(2, 2 * kKey, DeltaCase::kGroup),
          v.MergeLast().SplitLast(DeltaCase::kKeyHeads, DeltaCase::kShared * DeltaCase::kValue));
      const Value y = GatedDelta(runner.tape(), delta.spec,
                                 {groups.Slice(2, 0, kKey), groups.Slice(2, kKey, 2 * kKey), v,
                                  gates.Slice(2, DeltaCase::kShared, 2 * DeltaCase::kShared),
                                  gates.Slice(2, 0, DeltaCase::kShared)},
                                 {step.runs.data(), &count}, pool.pool);
      const std::vector<float> got = runner.Run({y}, 1)[0];
      for (const SequenceRun& run : step.runs) {
        int64_t& t = done[SequenceOf(run)];
        for (int64_t row = run.begin; row < run.end; ++row, ++t) {
          for (int64_t i = 0; i < DeltaCase::kY; ++i) {
            const double want = expected[SequenceOf(run)][At(t * DeltaCase::kY + i)];
            RC_ASSERT(std::abs(D(got[At(row * DeltaCase::kY + i)]) - want) < 1e-5);
          }
        }
      }
    }
  }));
}

// The convolution of the next step must wait for this one's state: the pool is a resource.
TEST(CausalConv, StateOrdersRecords) {
  const ConvCase conv;
  Pool pool(StateBytesOf(conv.spec));
  const int32_t count = 0;
  Tape tape(test::Kernels());
  const Value x = tape.NewValue(DType::kF32, {1, 70});
  CausalConv(tape, conv.spec, x, {nullptr, &count}, pool.pool);
  CausalConv(tape, conv.spec, x, {nullptr, &count}, pool.pool);
  tape.Seal(2);
  EXPECT_EQ(tape.meetings(), 1);
}

}  // namespace
}  // namespace tenon
