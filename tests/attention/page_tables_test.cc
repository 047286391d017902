// What page tables may look like besides a sequence's pages from the first on: pages that a window
// or chunk has given back, and pages of which an eviction kept some, so that a row's place is no
// longer its position.
#include "attention/harness.h"

namespace tenon::test {
namespace {

AttentionSpec SmallSpec(DType dtype, int32_t page_tokens) {
  AttentionSpec spec;
  spec.heads = 6;
  spec.kv_heads = 2;
  spec.head_dim = spec.v_head_dim = 24;
  spec.scale = 0.2f;
  spec.kv_dtype = dtype;
  spec.page_tokens = page_tokens;
  return spec;
}

// One sequence of one layer, step by step, every step on a tape of its own.
class Stepper {
 public:
  Stepper(const AttentionBackend& backend, const AttentionSpec& spec, const CacheSizing& sizing)
      : backend_(backend), spec_(spec), layer_(backend.CreateLayer(spec)) {
    const CacheSpec cache = CacheSpecOf(spec, backend);
    LayerCache* const caches[] = {&cache_};
    auto manager = CacheManager::Create({&cache, 1}, caches, sizing);
    TN_CHECK(manager.ok(), manager.ok() ? "" : manager.message().c_str());
    manager_ = *std::move(manager);
    plan_ = backend.CreatePlan(0, cache);
    TN_CHECK(*manager_->Admit() == 0, "the only one");
    Poison({});
  }
  CacheManager& manager() { return *manager_; }
  std::span<const int32_t> pages() const { return manager_->PagesOf(0, 0); }

  // NaN in all pages but these.
  void Poison(std::span<const int32_t> kept) {
    for (int32_t page = 0; page < manager_->pages(0); ++page) {
      if (std::find(kept.begin(), kept.end(), page) == kept.end()) {
        std::memset(cache_.base + page * cache_.page_bytes, 0xFF,
                    static_cast<size_t>(cache_.page_bytes));
      }
    }
  }

  struct Step {
    RequestPhase phase = RequestPhase::kPrefill;
    std::vector<int32_t> table;
    int64_t kv_len = 0;  // rows of the table's pages after the step
    std::vector<int32_t> positions;
    const RopeFrequencyTable* rope = nullptr;  // null: q and k are taken as they are
  };
  // q, k, v of the step's rows -> out.
  std::vector<float> Run(const Step& step, const SequenceData& rows, int threads) {
    const auto n = static_cast<int64_t>(step.positions.size());
    const StepRequest request = {step.phase, 0, static_cast<int32_t>(n),
                                 static_cast<int32_t>(step.kv_len), 0};
    const GroupPages group = {step.table.data(), static_cast<int32_t>(step.table.size()),
                              cache_.page_tokens};
    StepLayout layout;
    layout.num_tokens = n;
    layout.positions = step.positions.data();
    layout.requests = {&request, 1};
    layout.groups = {&group, 1};
    backend_.Prepare(layout, *plan_);
    TapeRunner runner(threads);
    QkvView view{Input(runner.tape(), &rows.q, {n, spec_.heads, spec_.head_dim}),
                 Input(runner.tape(), &rows.k, {n, spec_.kv_heads, spec_.head_dim}),
                 Input(runner.tape(), &rows.v, {n, spec_.kv_heads, spec_.v_head_dim})};
    if (step.rope != nullptr)
      view.angles = RopeAngles(runner.tape(), *step.rope, step.positions.data(), nullptr, n);
    return runner.Run(layer_->Run(runner.tape(), view, {&layout, plan_.get(), &cache_}));
  }

 private:
  const AttentionBackend& backend_;
  AttentionSpec spec_;
  std::unique_ptr<AttentionLayer> layer_;
  LayerCache cache_;
  std::unique_ptr<CacheManager> manager_;
  std::unique_ptr<StepPlan> plan_;
};

// Rows [begin, end).
SequenceData RowsOf(const AttentionSpec& spec, const SequenceData& data, int64_t begin,
                    int64_t end) {
  const auto part = [&](const std::vector<float>& all, int64_t width) {
    return std::vector<float>(all.begin() + begin * width, all.begin() + end * width);
  };
  return {part(data.q, spec.heads * spec.head_dim), part(data.k, spec.kv_heads * spec.head_dim),
          part(data.v, spec.kv_heads * spec.v_head_dim)};
}

class PageTables : public testing::TestWithParam<std::tuple<const char*, DType, int32_t, Compute>> {
};

// The manager gives back pages as the sequence grows; whatever then lies in them is never read.
TEST_P(PageTables, RowsOutOfSightAreNotRead) {
  const auto& [name, dtype, page_tokens, compute] = GetParam();
  const auto backend = BackendNamed(name);
  struct Limit {
    std::optional<int64_t> window, chunk;
  };
  for (const Limit& limit :
       {Limit{9, {}}, Limit{1, {}}, Limit{50, {}}, Limit{{}, 48}, Limit{{}, 11}, Limit{70, 64}}) {
    AttentionSpec spec = SmallSpec(dtype, page_tokens);
    spec.compute = compute;
    spec.window = limit.window;
    spec.chunk = limit.chunk;
    constexpr int64_t kRows = 330;
    constexpr int64_t kStep = 40;
    Stepper stepper(*backend, spec, {.tokens = kRows, .max_step_tokens = kStep});
    const SequenceData data = MakeData(spec, {{RequestPhase::kPrefill, 0, kRows}}, 3)[0];
    std::mt19937 random(5);
    int64_t dropped = 0;
    for (int64_t before = 0; before < kRows;) {
      const RequestPhase phase = before % 3 == 0   ? RequestPhase::kPrefill
                                 : before % 3 == 1 ? RequestPhase::kVerify
                                                   : RequestPhase::kDecode;
      int64_t rows = 1;
      if (phase == RequestPhase::kPrefill) rows = 1 + random() % kStep;
      if (phase == RequestPhase::kVerify) rows = 1 + random() % 5;
      rows = std::min(rows, kRows - before);
      ASSERT_TRUE(stepper.manager().Append(0, rows).ok());
      const auto pages = stepper.pages();
      dropped = std::count(pages.begin(), pages.end(), PagePool::kDropped);
      stepper.Poison(pages);
      Stepper::Step step = {phase, {pages.begin(), pages.end()}, before + rows, {}, nullptr};
      for (int64_t i = 0; i < rows; ++i) step.positions.push_back(static_cast<int32_t>(before + i));
      const auto out = stepper.Run(step, RowsOf(spec, data, before, before + rows), 2);
      const auto expected = BruteForce(spec, dtype, {{phase, before, rows}}, {data});
      ASSERT_LT(Distance(out, expected), ToleranceOf(*backend, spec))
          << "window " << limit.window.value_or(0) << ", chunk " << limit.chunk.value_or(0)
          << ", rows " << before << " to " << before + rows;
      before += rows;
    }
    EXPECT_GE(dropped, 3);
  }
}

// Rows of heads, rotated by their positions, in double.
std::vector<double> RotatedRows(const RopeFrequencyTable& rope, const std::vector<float>& x,
                                const std::vector<int32_t>& positions, int64_t head_dim) {
  std::vector<double> y(x.begin(), x.end());
  const int64_t half = rope.rotary_dim / 2;
  const int64_t width = static_cast<int64_t>(x.size() / positions.size());
  for (size_t row = 0; row < positions.size(); ++row) {
    for (int64_t head = 0; head < width / head_dim; ++head) {
      double* at = y.data() + static_cast<int64_t>(row) * width + head * head_dim;
      for (int64_t j = 0; j < half; ++j) {
        const auto angle =
            static_cast<double>(static_cast<float>(positions[row]) * rope.inv_freq[j]);
        const double a = at[j];
        const double b = at[j + half];
        at[j] = a * std::cos(angle) - b * std::sin(angle);
        at[j + half] = b * std::cos(angle) + a * std::sin(angle);
      }
    }
  }
  return y;
}

// One query against all of these keys: [heads, v_head_dim].
std::vector<double> AttendAll(const AttentionSpec& spec, const std::vector<double>& q,
                              const std::vector<double>& k, const std::vector<double>& v) {
  const int64_t d = spec.head_dim;
  const auto keys = static_cast<int64_t>(k.size()) / (spec.kv_heads * d);
  std::vector<double> out;
  for (int64_t h = 0; h < spec.heads; ++h) {
    const int64_t kv = h / (spec.heads / spec.kv_heads);
    std::vector<double> sums(static_cast<size_t>(d));
    double total = 0;
    for (int64_t key = 0; key < keys; ++key) {
      const int64_t at = (key * spec.kv_heads + kv) * d;
      double dot = 0;
      for (int64_t c = 0; c < d; ++c)
        dot += q[static_cast<size_t>(h * d + c)] * k[static_cast<size_t>(at + c)];
      const double p = std::exp(dot * static_cast<double>(spec.scale));
      total += p;
      for (int64_t c = 0; c < d; ++c)
        sums[static_cast<size_t>(c)] += p * v[static_cast<size_t>(at + c)];
    }
    for (const double sum : sums) out.push_back(sum / total);
  }
  return out;
}

// An eviction policy keeps pages 0, 2 and 4 of five and closes the gaps: keys stay as they were
// rotated at their own positions, and the next row, the 81st token, becomes row 48 of what is left.
// A kernel must find it there by kv_len and rotate it by its position.
TEST_P(PageTables, RowsNeedNotBePositions) {
  const auto& [name, dtype, page_tokens, compute] = GetParam();
  const auto backend = BackendNamed(name);
  AttentionSpec spec = SmallSpec(dtype, page_tokens);
  spec.compute = compute;
  const int64_t rows = int64_t{5} * page_tokens;
  const auto next = static_cast<int32_t>(rows);
  Stepper stepper(*backend, spec, {.tokens = rows + page_tokens});
  std::vector<float> inv_freq;
  for (int j = 0; j < 8; ++j) inv_freq.push_back(std::pow(100.0f, -static_cast<float>(j) / 8));
  const float factor = 1;
  const RopeFrequencyTable rope = {inv_freq.data(), &factor, 16};
  const SequenceData data = MakeData(spec, {{RequestPhase::kPrefill, 0, rows + 1}}, 7)[0];
  std::vector<int32_t> positions(static_cast<size_t>(rows));
  std::iota(positions.begin(), positions.end(), 0);

  ASSERT_TRUE(stepper.manager().Append(0, rows).ok());
  const auto pages = stepper.pages();
  stepper.Run({RequestPhase::kPrefill, {pages.begin(), pages.end()}, rows, positions, &rope},
              RowsOf(spec, data, 0, rows), 2);
  ASSERT_TRUE(stepper.manager().Append(0, 1).ok());
  const std::vector<int32_t> kept = {stepper.pages()[0], stepper.pages()[2], stepper.pages()[4],
                                     stepper.pages()[5]};
  stepper.Poison(kept);
  const int64_t kept_rows = int64_t{3} * page_tokens;
  Stepper::Step step = {RequestPhase::kDecode, kept, kept_rows + 1, {next}, &rope};
  const SequenceData newest = RowsOf(spec, data, rows, rows + 1);
  const auto out = stepper.Run(step, newest, 2);

  std::vector<float> k;
  std::vector<float> v;
  std::vector<int32_t> kept_positions;
  const int64_t width = spec.kv_heads * spec.head_dim;
  for (int32_t row = 0; row <= next; ++row) {
    if (row != next && row / page_tokens % 2 == 1) continue;
    kept_positions.push_back(row);
    k.insert(k.end(), data.k.begin() + row * width, data.k.begin() + (row + 1) * width);
    v.insert(v.end(), data.v.begin() + row * width, data.v.begin() + (row + 1) * width);
  }
  const std::vector<double> rotated = RotatedRows(rope, k, kept_positions, spec.head_dim);
  const std::vector<double> keys =
      StoredRows(dtype, std::vector<float>(rotated.begin(), rotated.end()), spec.head_dim);
  const auto expected = AttendAll(spec, RotatedRows(rope, newest.q, {next}, spec.head_dim), keys,
                                  StoredRows(dtype, v, spec.v_head_dim));
  // A last bit of a rotated key may be rounded into another bf16.
  const double tolerance = dtype == DType::kF32 ? 2e-5 : 5e-3;
  EXPECT_LT(Distance(out, expected), std::max(tolerance, ToleranceOf(*backend, spec)));

  // Had it been rotated by its row, the result would be another one.
  step.positions = {static_cast<int32_t>(kept_rows)};
  EXPECT_GT(Distance(stepper.Run(step, newest, 2), expected), 0.02);
}

INSTANTIATE_TEST_SUITE_P(All, PageTables,
                         testing::Combine(testing::Values("NATIVE", "FLASHINFER", "VANILLA"),
                                          testing::Values(DType::kF32, DType::kBF16),
                                          testing::Values(16, 32),
                                          testing::Values(Compute::kFp32)));

}  // namespace
}  // namespace tenon::test
