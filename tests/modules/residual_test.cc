// Norms with what their container stores, and the residual stream: addends wait until a norm or a
// sum consumes them.
#include "tenon/modules/residual.h"

#include <rapidcheck.h>

#include "modules/bench.h"
#include "tenon/modules/embedding.h"
#include "tenon/modules/norm.h"

namespace tenon {
namespace {

using test::D;
using test::ExpectNear;
using test::ExpectWords;
using test::Floats;
using test::ModuleBench;
using test::Recording;
using test::RowOf;

constexpr size_t kWidth = 6;
constexpr float kEps = 1e-3f;

struct Affine {
  std::vector<float> weight;
  std::vector<float> bias;
  double offset = 0;
};

// x / sqrt(mean(x^2) + eps) * (offset + w), over each row.
std::vector<double> RmsOf(const std::vector<double>& x, const Affine& affine) {
  std::vector<double> y;
  for (size_t begin = 0; begin < x.size(); begin += kWidth) {
    double squares = 0;
    for (size_t i = 0; i < kWidth; ++i) squares += x[begin + i] * x[begin + i];
    const double scale = 1 / std::sqrt(squares / kWidth + D(kEps));
    for (size_t i = 0; i < kWidth; ++i) {
      y.push_back(x[begin + i] * scale * (affine.offset + D(affine.weight[i])));
    }
  }
  return y;
}

std::vector<double> Wide(const std::vector<float>& x) { return {x.begin(), x.end()}; }

TEST(Norm, RmsWithAndWithoutOnePlusW) {
  for (const float offset : {0.0f, 1.0f}) {
    ModuleBench bench;
    bench.Put("n.weight", {kWidth}, DType::kBF16);
    bench.Open();
    const NormModule norm(bench.At("n"), {.width = kWidth, .eps = kEps, .weight_offset = offset});
    bench.Load();
    const std::vector<float> x = Floats(2 * kWidth, 1, 3.0f);
    Recording recording(2);
    ExpectNear(recording.Run(norm(recording.pass, recording.Input(x))),
               RmsOf(Wide(x), {bench.Of("n.weight"), {}, D(offset)}));
  }
}

TEST(Norm, LayerNormWithBias) {
  ModuleBench bench;
  bench.Put("n.weight", {kWidth});
  bench.Put("n.bias", {kWidth});
  bench.Open();
  const NormModule norm(bench.At("n"),
                        {.kind = NormKind::kLayer, .width = kWidth, .eps = kEps, .has_bias = true});
  bench.Load();
  const std::vector<float> x = Floats(kWidth, 2, 3.0f);
  double mean = 0;
  double variance = 0;
  for (const float v : x) mean += D(v) / kWidth;
  for (const float v : x) variance += (D(v) - mean) * (D(v) - mean) / kWidth;
  std::vector<double> expected;
  for (size_t i = 0; i < kWidth; ++i) {
    expected.push_back((D(x[i]) - mean) / std::sqrt(variance + D(kEps)) *
                           D(bench.Of("n.weight")[i]) +
                       D(bench.Of("n.bias")[i]));
  }
  Recording recording(1);
  ExpectNear(recording.Run(norm(recording.pass, recording.Input(x))), expected);
}

TEST(Norm, InPlace) {
  ModuleBench bench;
  bench.Put("n.weight", {kWidth});
  bench.Open();
  const NormModule norm(bench.At("n"), {.width = kWidth, .eps = kEps});
  bench.Load();
  const std::vector<float> x = Floats(2 * kWidth, 3);
  Recording recording(2);
  const Value value = recording.Input(x);
  norm.InPlace(recording.pass, value);
  ExpectNear(recording.Run(value), RmsOf(Wide(x), {bench.Of("n.weight"), {}, 0}));
}

TEST(Norm, NamesWhatIsMissing) {
  ModuleBench bench;
  bench.Put("n.weight", {kWidth + 1});
  bench.Open();
  const NormModule norm(bench.At("n"), {.width = kWidth, .has_bias = true});
  ExpectWords(bench.Create().message(), {"2 problems", "n.weight: shape [7]", "[6]", "n.bias:"});
}

// --- the stream

class ResidualTest : public testing::Test {
 protected:
  void SetUp() override {
    bench_.Put("n.weight", {kWidth});
    bench_.Open();
    norm_ = std::make_unique<NormModule>(bench_.At("n"), NormOptions{.width = kWidth, .eps = kEps});
    bench_.Load();
  }
  std::vector<double> NormOf(const std::vector<double>& x) const {
    return RmsOf(x, {bench_.Of("n.weight"), {}, 0});
  }
  ModuleBench bench_;
  std::unique_ptr<NormModule> norm_;
};

TEST_F(ResidualTest, TheNormConsumesWhatIsPending) {
  const std::vector<float> base = Floats(2 * kWidth, 4);
  const std::vector<float> a = Floats(2 * kWidth, 5);
  const std::vector<float> b = Floats(2 * kWidth, 6);
  Recording recording(2);
  Residual stream(recording.Input(base));
  const Value first = (*norm_)(recording.pass, stream);
  stream.Add(recording.Input(a));
  stream.Add(recording.Input(b));
  const size_t records = recording.runner.tape().records().size();
  const Value second = (*norm_)(recording.pass, stream);
  EXPECT_EQ(recording.runner.tape().records().size(), records + 1) << "sum and norm in one pass";
  const Value sum = stream.Sum(recording.pass);
  EXPECT_EQ(recording.runner.tape().records().size(), records + 1) << "nothing is pending now";
  const auto results = recording.runner.Run({first, second, sum});
  std::vector<double> expected = Wide(base);
  ExpectNear(results[0], NormOf(expected));
  for (size_t i = 0; i < expected.size(); ++i) expected[i] += D(a[i]) + D(b[i]);
  ExpectNear(results[1], NormOf(expected));
  ExpectNear(results[2], expected);
}

// After the last attention only the rows of logits go on, unless all are to be seen.
TEST_F(ResidualTest, RowsWithoutLogitsMayGo) {
  const std::vector<float> base = Floats(4 * kWidth, 9);
  const std::vector<float> a = Floats(4 * kWidth, 10);
  const std::vector<int32_t> wanted = {3, 1};
  std::vector<double> sums;
  for (const int32_t row : wanted) {
    for (size_t i = 0; i < kWidth; ++i) {
      const size_t at = static_cast<size_t>(row) * kWidth + i;
      sums.push_back(D(base[at]) + D(a[at]));
    }
  }
  for (const bool taps : {false, true}) {
    for (const int32_t count : {2, 0}) {
      Recording recording(4);
      recording.layout.logit_rows = wanted.data();
      recording.layout.num_logit_rows = count;
      recording.pass.taps = taps;
      Residual stream(recording.Input(base));
      stream.Add(recording.Input(a));
      stream.KeepLogitRows(recording.pass);
      const Value normed = (*norm_)(recording.pass, stream);
      EXPECT_EQ(normed.dim(0), taps ? 4 : count);
      const Value rows = LogitRows(recording.pass, normed);
      ASSERT_EQ(rows.dim(0), count);
      if (count > 0) ExpectNear(recording.Run(rows), NormOf(sums));
    }
  }
}

TEST_F(ResidualTest, ATapCostsNothingUnlessWanted) {
  const std::vector<float> base = Floats(kWidth, 7);
  const std::vector<float> a = Floats(kWidth, 8);
  for (const bool wanted : {false, true}) {
    Recording recording(1);
    recording.pass.taps = wanted;
    Residual stream(recording.Input(base));
    stream.Add(recording.Input(a));
    const size_t records = recording.runner.tape().records().size();
    stream.Tap(recording.pass, "here");
    const Tape& tape = recording.runner.tape();
    ASSERT_EQ(tape.kept().size(), wanted ? 1u : 0u);
    EXPECT_EQ(tape.records().size(), records + (wanted ? 1 : 0));
    if (!wanted) continue;
    EXPECT_EQ(tape.kept()[0].name, "here");
    std::vector<double> expected = Wide(base);
    for (size_t i = 0; i < expected.size(); ++i) expected[i] += D(a[i]);
    ExpectNear(recording.Run(tape.kept()[0].value), expected);
  }
}

// Any sequence of additions, norms and sums, against plain sums.
TEST_F(ResidualTest, AnySequence) {
  EXPECT_TRUE(rc::check("norms and sums see every addend once", [this] {
    const auto tokens = *rc::gen::inRange<int64_t>(1, 4);
    const auto count = static_cast<int64_t>(kWidth) * tokens;
    Recording recording(tokens);
    const std::vector<float> base = Floats(count, 10);
    Residual stream(recording.Input(base));
    std::vector<double> sum = Wide(base);
    std::vector<Value> values;
    std::vector<std::vector<double>> expected;
    const int steps = *rc::gen::inRange(1, 25);
    for (int step = 0; step < steps; ++step) {
      const int kind = *rc::gen::inRange(0, 6);
      if (kind == 0) {
        values.push_back((*norm_)(recording.pass, stream));
        expected.push_back(NormOf(sum));
      } else if (kind == 1) {
        values.push_back(stream.Sum(recording.pass));
        expected.push_back(sum);
      } else {  // long runs of addends: more than one op takes
        const std::vector<float> addend = Floats(count, static_cast<uint32_t>(11 + step));
        stream.Add(recording.Input(addend));
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += D(addend[i]);
      }
    }
    values.push_back((*norm_)(recording.pass, stream));
    expected.push_back(NormOf(sum));
    const auto results = recording.runner.Run(values);
    for (size_t v = 0; v < values.size(); ++v) {
      RC_ASSERT(results[v].size() == expected[v].size());
      for (size_t i = 0; i < expected[v].size(); ++i) {
        RC_ASSERT(std::abs(D(results[v][i]) - expected[v][i]) <=
                  1e-4 * (1 + std::abs(expected[v][i])));
      }
    }
  }));
}

}  // namespace
}  // namespace tenon
