// What must not change a result, bit by bit: the team, the other sequences, the page size, whether
// a row is prefilled or decoded, limits longer than the sequence. And what a tape may meet when it
// is run again.
#include "attention/harness.h"

namespace tenon::test {
namespace {

constexpr RequestPhase kP = RequestPhase::kPrefill;
constexpr RequestPhase kD = RequestPhase::kDecode;

AttentionSpec PlainSpec() {
  AttentionSpec spec;
  spec.heads = 6;
  spec.kv_heads = 2;
  spec.head_dim = spec.v_head_dim = 20;
  spec.scale = 0.2f;
  return spec;
}

// Rows of the step that belong to request i.
std::vector<float> RowsOf(const std::vector<float>& out, const std::vector<TestRequest>& requests,
                          size_t i, int64_t width) {
  int64_t begin = 0;
  for (size_t j = 0; j < i; ++j) begin += requests[j].rows;
  return {out.begin() + begin * width, out.begin() + (begin + requests[i].rows) * width};
}

struct Kind {
  const char* backend;
  Compute compute = Compute::kFp32;
};

class Invariance : public testing::TestWithParam<Kind> {
 protected:
  std::shared_ptr<const AttentionBackend> backend() const {
    return BackendNamed(GetParam().backend);
  }
  AttentionSpec Spec() const {
    AttentionSpec spec = PlainSpec();
    spec.compute = GetParam().compute;
    return spec;
  }
};

TEST_P(Invariance, TeamPagesAndNeighbours) {
  const std::vector<TestRequest> requests = {{kP, 0, 70},  {kP, 500, 9},  {kD, 3000, 1},
                                             {kD, 700, 1}, {kD, 1100, 1}, {kD, 0, 1}};
  AttentionSpec spec = Spec();
  const int64_t width = spec.heads * spec.v_head_dim;
  const auto data = MakeData(spec, requests, 1);
  const auto first = RunLayer(*backend(), spec, requests, data, {.threads = 1});
  for (const int32_t page_tokens : {16, 64, 256}) {
    for (const int threads : {1, 2, 3}) {
      spec.page_tokens = page_tokens;
      EXPECT_EQ(RunLayer(*backend(), spec, requests, data,
                         {.threads = threads, .seed = static_cast<unsigned>(threads)}),
                first);
    }
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(RunLayer(*backend(), spec, {requests[i]}, {data[i]}, {.threads = 2}),
              RowsOf(first, requests, i, width))
        << "request " << i << " alone";
  }
}

// Every row of a prefill is what decoding it one by one gives, or prefilling it alone where
// decoding rounds less.
TEST_P(Invariance, PrefillAndDecodeAgree) {
  for (const std::optional<int64_t> window : {std::optional<int64_t>(), {150}}) {
    AttentionSpec spec = Spec();
    spec.window = window;
    const std::vector<TestRequest> prefill = {{kP, 0, 400}};
    const auto data = MakeData(spec, prefill, 2);
    const auto all = RunLayer(*backend(), spec, prefill, data);
    const int64_t width = spec.heads * spec.v_head_dim;
    for (const int64_t row : {0, 1, 127, 128, 200, 399}) {
      SequenceData cut = data[0];
      cut.q.resize(static_cast<size_t>((row + 1) * spec.heads * spec.head_dim));
      const RequestPhase phase = spec.compute == Compute::kFp32 ? kD : kP;
      const auto one = RunLayer(*backend(), spec, {{phase, row, 1}}, {cut});
      EXPECT_EQ(one, std::vector<float>(all.begin() + row * width, all.begin() + (row + 1) * width))
          << "row " << row;
    }
  }
}

// The chunk that a row of a prompt comes in, and so how many rows follow it in the step, changes
// nothing, beyond the first segments too.
TEST_P(Invariance, ChunksOfAPrompt) {
  const AttentionSpec spec = Spec();
  const int64_t width = spec.heads * spec.v_head_dim;
  for (const int64_t before : {90, 4090, 8180}) {
    const std::vector<TestRequest> whole = {{kP, before, 40}};
    const auto data = MakeData(spec, whole, 3);
    const auto all = RunLayer(*backend(), spec, whole, data);
    for (const int64_t first : {0, 7, 20}) {
      const std::vector<TestRequest> part = {{kP, before + first, 9}};
      EXPECT_EQ(RunLayer(*backend(), spec, part, data),
                std::vector<float>(all.begin() + first * width, all.begin() + (first + 9) * width))
          << before << " + " << first;
    }
  }
}

TEST_P(Invariance, LimitsThatDoNotBind) {
  const std::vector<TestRequest> requests = {{kP, 100, 41}, {kD, 129, 1}, {kD, 0, 1}};
  const AttentionSpec plain = Spec();
  const auto data = MakeData(plain, requests, 4);
  const auto full = RunLayer(*backend(), plain, requests, data);
  AttentionSpec spec = plain;
  spec.window = 141;  // the longest sequence
  EXPECT_EQ(RunLayer(*backend(), spec, requests, data), full);
  spec.window = 140;
  EXPECT_NE(RunLayer(*backend(), spec, requests, data), full);
  spec = plain;
  spec.chunk = 141;
  if (Serves(*backend(), spec)) {
    EXPECT_EQ(RunLayer(*backend(), spec, requests, data), full);
    spec.chunk = 140;
    EXPECT_NE(RunLayer(*backend(), spec, requests, data), full);
  }
  const std::vector<float> none(6, -INFINITY);
  const float* none_at = none.data();
  spec = plain;
  spec.sinks = &none_at;
  EXPECT_EQ(RunLayer(*backend(), spec, requests, data), full);
}

// NaN in one sequence stays in it, and shows.
TEST_P(Invariance, NotANumberStaysInItsSequence) {
  const std::vector<TestRequest> requests = {{kP, 20, 9}, {kP, 0, 40}, {kD, 200, 1}, {kD, 30, 1}};
  const AttentionSpec spec = Spec();
  const int64_t width = spec.heads * spec.v_head_dim;
  const auto clean = MakeData(spec, requests, 5);
  const auto expected = RunLayer(*backend(), spec, requests, clean);
  for (size_t bad = 0; bad < requests.size(); ++bad) {
    for (const bool in_query : {false, true}) {
      auto data = clean;
      if (in_query) {
        std::fill(data[bad].q.begin(), data[bad].q.end(), NAN);
      } else {
        data[bad].k[3] = NAN;
      }
      const auto out = RunLayer(*backend(), spec, requests, data, {.threads = 2});
      for (size_t i = 0; i < requests.size(); ++i) {
        const auto rows = RowsOf(out, requests, i, width);
        if (i != bad) {
          EXPECT_EQ(rows, RowsOf(expected, requests, i, width));
        } else {
          EXPECT_TRUE(std::isnan(rows[0]));  // head 0 reads the damaged kv head
        }
      }
    }
  }
}

// One tape, many steps: lengths, pages and requests change, addresses do not.
TEST_P(Invariance, TapesAreReusedWhileSequencesGrow) {
  const AttentionSpec spec = Spec();
  const auto chosen = backend();
  const std::vector<TestRequest> whole = {{kP, 0, 300}, {kP, 0, 290}, {kP, 0, 31}};
  const auto data = MakeData(spec, whole, 6);
  const auto expected = BruteForce(spec, DType::kF32, whole, data);
  Sequences sequences(CacheSpecOf(spec, *chosen), 3, 700, 2);
  sequences.Admit(whole);
  const auto layer = chosen->CreateLayer(spec);
  const AttentionCall call = sequences.Call(*chosen);
  const int64_t qw = spec.heads * spec.head_dim;
  const int64_t kw = spec.kv_heads * spec.head_dim;
  // Each sequence starts with all but its last rows, then all three grow together.
  constexpr int64_t kSteps = 12;
  std::vector<float> q(static_cast<size_t>(3 * qw));
  std::vector<float> k;
  std::vector<float> v;
  std::vector<Sequences::Part> start;
  for (size_t i = 0; i < 3; ++i) {
    const int64_t rows = whole[i].rows - kSteps;
    start.push_back({kP, rows, rows, 0});
    k.insert(k.end(), data[i].k.begin(), data[i].k.begin() + rows * kw);
    v.insert(v.end(), data[i].v.begin(), data[i].v.begin() + rows * kw);
  }
  sequences.SetStep(start);
  {
    TapeRunner runner(2);
    const int64_t n = sequences.layout().num_tokens;
    const Value k_in = Input(runner.tape(), &k, {n, 2, 20});
    layer->Run(runner.tape(), {{}, k_in, Input(runner.tape(), &v, {n, 2, 20})}, call);
    runner.Run(k_in);
  }
  const auto step_to = [&](int64_t step) {
    std::vector<Sequences::Part> parts;
    for (size_t i = 0; i < 3; ++i) {
      const int64_t row = whole[i].rows - kSteps + step;
      parts.push_back({kD, 1, row + 1, 0});
      std::copy_n(data[i].q.begin() + row * qw, qw, q.begin() + static_cast<int64_t>(i) * qw);
      std::copy_n(data[i].k.begin() + row * kw, kw, k.begin() + static_cast<int64_t>(i) * kw);
      std::copy_n(data[i].v.begin() + row * kw, kw, v.begin() + static_cast<int64_t>(i) * kw);
    }
    sequences.SetStep(parts);
    sequences.Prepare(*chosen);
  };
  k.resize(static_cast<size_t>(3 * kw));
  v.resize(static_cast<size_t>(3 * kw));
  step_to(0);
  TapeRunner runner(2);
  Tape& tape = runner.tape();
  const Value out = layer->Run(
      tape, {Input(tape, &q, {3, 6, 20}), Input(tape, &k, {3, 2, 20}), Input(tape, &v, {3, 2, 20})},
      call);
  for (int64_t step = 0; step < kSteps; ++step) {
    step_to(step);
    const auto rows = runner.Run(out);
    int64_t offset = 0;
    for (size_t i = 0; i < 3; ++i) {
      const int64_t row = whole[i].rows - kSteps + step;
      const auto at = [&](int64_t r) { return expected.begin() + (offset + r) * qw; };
      const std::vector<double> wanted(at(row), at(row + 1));
      const std::vector<float> got(rows.begin() + static_cast<int64_t>(i) * qw,
                                   rows.begin() + static_cast<int64_t>(i + 1) * qw);
      EXPECT_LT(Distance(got, wanted), ToleranceOf(*chosen, spec))
          << "step " << step << ", sequence " << i;
      offset += whole[i].rows;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Invariance,
                         testing::Values(Kind{"VANILLA"}, Kind{"NATIVE"},
                                         Kind{"NATIVE", Compute::kBf16}, Kind{"FLASHINFER"}),
                         [](const testing::TestParamInfo<Kind>& test) {
                           return std::string(test.param.backend) +
                                  (test.param.compute == Compute::kFp32 ? "" : "_bf16_products");
                         });

}  // namespace
}  // namespace tenon::test
