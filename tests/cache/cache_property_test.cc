// Random verbs on caches of all kinds, against a model that knows what each row depends on: all
// tokens up to it and the key. Every row that a live sequence may see must hold just that number,
// whoever wrote it.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <map>

#include "cache/cache_fixture.h"

namespace tenon {
namespace {

using test::CacheFixture;
using test::Get;
using test::Put;

constexpr int64_t kMaxStep = 48;
constexpr int64_t kTokens = 480;
constexpr int64_t kSequences = 4;

CacheSpec Rows(int layer, int32_t page_tokens) {
  return {
      .kind = CacheKind::kPagedRows, .layer = layer, .row_bytes = 8, .page_tokens = page_tokens};
}

std::vector<CacheSpec> Specs(int model) {
  CacheSpec window = Rows(2, 32);
  window.window = 24;
  CacheSpec chunk = Rows(3, 16);
  chunk.chunk = 40;
  CacheSpec large_window = Rows(4, 64);
  large_window.window = 70;
  const CacheSpec state = {.kind = CacheKind::kState, .layer = 5, .state_bytes = 8};
  CacheSpec cross = Rows(6, 16);
  cross.kind = CacheKind::kCross;
  switch (model) {
    case 0:
      return {Rows(0, 16), Rows(0, 16), Rows(1, 128), window, chunk, large_window};
    case 1:
      return {window, large_window};
    case 2:
      return {Rows(0, 64), window, state};
    case 3:
      return {state};
    default:
      return {Rows(0, 16), window, cross};
  }
}

// What a row is: a number for all that went into it.
uint64_t Chain(uint64_t before, uint64_t next) {
  uint64_t h = (before ^ next) * 0xD6E8FEB86659FD93u;
  h ^= h >> 32;
  return h * 0xD6E8FEB86659FD93u;
}

struct Expected {
  std::vector<int32_t> tokens;
  std::vector<int64_t> rows;  // one number per token
  PrefixKey key;
  int64_t Next(int32_t token) const {
    const uint64_t before =
        rows.empty() ? Chain(key.salt, key.regime + 1) : static_cast<uint64_t>(rows.back());
    return static_cast<int64_t>(Chain(before, static_cast<uint64_t>(token) + 1));
  }
  void Add(int32_t token) {
    rows.push_back(Next(token));
    tokens.push_back(token);
  }
  int64_t length() const { return static_cast<int64_t>(rows.size()); }
};

class Model {
 public:
  explicit Model(int model)
      : f_(Specs(model), {.tokens = kTokens,
                          .cross_tokens = 64,
                          .max_sequences = kSequences,
                          .max_sequence_tokens = 400,
                          .max_step_tokens = kMaxStep,
                          .max_snapshots = 3,
                          .prefix_reuse = true}) {
    RC_ASSERT(f_.manager->bytes() == f_.manager->plan().bytes);
  }

  void Step() {
    const int32_t what = *rc::gen::inRange(0, 32);
    if (live_.empty() || what < 5) return Admit();
    const auto at = *rc::gen::inRange<size_t>(0, live_.size());
    const int32_t s = std::next(live_.begin(), static_cast<std::ptrdiff_t>(at))->first;
    if (what < 18) return Append(s);
    if (what < 23) return Publish(s);
    if (what < 25) return Fork(s);
    if (what < 27) return Keep(s);
    if (what < 29) return SetCross(s);
    if (what < 31) {
      f_.manager->Free(s);
    } else {
      f_.manager->Preempt(s, live_[s].tokens);
    }
    live_.erase(s);
  }

  void Compare() const {
    const Status status = f_.manager->Check();
    RC_ASSERT(status.ok());
    RC_ASSERT(f_.manager->bytes() == f_.manager->plan().bytes);
    for (const auto& [s, e] : live_) Compare(s, e, e.length());
    for (size_t g = 0; g < f_.manager->plan().groups.size(); ++g) {
      if (!IsPaged(f_.manager->plan().groups[g].spec.kind)) continue;
      std::map<int32_t, int> used;
      for (const auto& [s, e] : live_) {
        for (const int32_t page : f_.manager->PagesOf(s, static_cast<int>(g))) {
          if (page != PagePool::kDropped) ++used[page];
        }
      }
      RC_ASSERT(static_cast<int64_t>(used.size()) + f_.manager->free_pages(static_cast<int>(g)) ==
                f_.manager->pages(static_cast<int>(g)));
    }
  }

 private:
  // Rows that a query at `position` sees, and the state.
  void Compare(int32_t s, const Expected& e, int64_t position) const {
    for (size_t i = 0; i < f_.specs.size(); ++i) {
      if (f_.IsState(i) && position == e.length() && position > 0)
        RC_ASSERT(Get(f_.State(i, f_.manager->SlotOf(s))) == e.rows.back());
      if (!f_.IsRows(i)) continue;
      for (int64_t row = f_.specs[i].FirstSeen(position); row < e.length(); ++row) {
        const std::byte* at = f_.Row(i, s, row);
        RC_ASSERT(at != nullptr);
        RC_ASSERT(Get(at) == e.rows[static_cast<size_t>(row)]);
      }
    }
  }
  // Few different texts, so that many agree for a while.
  std::vector<int32_t> Text() {
    std::vector<int32_t> text;
    if (!texts_.empty() && *rc::gen::inRange(0, 4) > 0) {
      text = texts_[*rc::gen::inRange<size_t>(0, texts_.size())];
      text.resize(*rc::gen::inRange<size_t>(0, text.size() + 1));
    }
    const int64_t more = *rc::gen::inRange(0, 120);
    const int32_t token = *rc::gen::inRange(0, 3);
    for (int64_t i = 0; i < more; ++i) text.push_back(token);
    text.resize(std::min<size_t>(text.size(), 390));
    return text;
  }
  void Admit() {
    const std::vector<int32_t> text = Text();
    const PrefixKey key = {.salt = *rc::gen::inRange<uint64_t>(0, 4) / 3, .regime = 0};
    const int64_t keep = *rc::gen::inRange(0, 3);
    const auto admitted = f_.manager->AdmitWithPrefix(text, key, keep);
    RC_ASSERT(admitted.ok() == (static_cast<int64_t>(live_.size()) < kSequences));
    if (!admitted.ok()) return;
    RC_ASSERT(!live_.contains(admitted->sequence));
    RC_ASSERT(admitted->reused_rows <=
              std::max<int64_t>(0, static_cast<int64_t>(text.size()) - keep));
    RC_ASSERT(f_.manager->LengthOf(admitted->sequence) == admitted->reused_rows);
    Expected& e = live_[admitted->sequence];
    e.key = key;
    for (int64_t i = 0; i < admitted->reused_rows; ++i) e.Add(text[static_cast<size_t>(i)]);
    texts_.push_back(text);
    if (texts_.size() > 6) texts_.erase(texts_.begin());
    // Part of the prompt, as an engine would go on.
    wanted_[admitted->sequence] = text;
  }
  void Append(int32_t s) {
    Expected& e = live_[s];
    const int64_t tokens = *rc::gen::inRange<int64_t>(0, kMaxStep + 1);
    int64_t all = tokens;
    for (const auto& [other, of_other] : live_) all += of_other.length();
    const int64_t length = e.length();
    const Status status = f_.manager->Append(s, tokens);
    if (!status.ok()) {
      RC_ASSERT(status.code() == StatusCode::kDoesNotFit);
      RC_ASSERT(all > kTokens || length + tokens > 400);
      return;
    }
    RC_ASSERT(f_.manager->CheckWritable(s, tokens).ok());
    Compare(s, e, length);
    const std::vector<int32_t>& text = wanted_[s];
    for (int64_t row = length; row < length + tokens; ++row) {
      const auto at = static_cast<size_t>(row);
      e.Add(at < text.size() ? text[at] : 3);
      for (size_t i = 0; i < f_.specs.size(); ++i) {
        if (f_.IsRows(i)) Put(f_.Row(i, s, row), e.rows.back());
      }
    }
    for (size_t i = 0; i < f_.specs.size() && tokens > 0; ++i) {
      if (f_.IsState(i)) Put(f_.State(i, f_.manager->SlotOf(s)), e.rows.back());
    }
  }
  void Publish(int32_t s) {
    const Expected& e = live_[s];
    auto count = e.tokens.size();
    if (*rc::gen::inRange(0, 4) == 0) count = *rc::gen::inRange<size_t>(0, count + 1);
    const bool with_states = *rc::gen::inRange(0, 3) > 0;
    f_.manager->Publish(s, std::span(e.tokens).first(count),
                        with_states ? PublishStates::kKeep : PublishStates::kNone);
  }
  void Fork(int32_t s) {
    const auto copy = f_.manager->Fork(s);
    RC_ASSERT(copy.ok() == (static_cast<int64_t>(live_.size()) < kSequences));
    if (!copy.ok()) return;
    live_[*copy] = live_[s];
    // The copy's text soon differs.
    wanted_[*copy] = live_[s].tokens;
  }
  void Keep(int32_t s) {
    Expected& e = live_[s];
    const auto rows = *rc::gen::inRange<int64_t>(0, e.length() + 1);
    if (!f_.manager->Keep(s, rows).ok()) return;
    e.rows.resize(static_cast<size_t>(rows));
    e.tokens.resize(static_cast<size_t>(rows));
    wanted_[s] = e.tokens;
    for (int64_t i = *rc::gen::inRange<int64_t>(0, 40); i > 0; --i) wanted_[s].push_back(1);
  }
  void SetCross(int32_t s) {
    static_cast<void>(f_.manager->SetCross(s, *rc::gen::inRange<int64_t>(0, 30)));
  }

  CacheFixture f_;
  std::map<int32_t, Expected> live_;
  std::map<int32_t, std::vector<int32_t>> wanted_;  // texts that sequences follow
  std::vector<std::vector<int32_t>> texts_;
};

TEST(CacheProperty, EveryRowIsOfItsOwnTokens) {
  for (int kind = 0; kind < 5; ++kind) {
    EXPECT_TRUE(rc::check([kind] {
      Model model(kind);
      const int steps = *rc::gen::inRange(1, 250);
      for (int i = 0; i < steps; ++i) {
        model.Step();
        model.Compare();
      }
    })) << "model "
        << kind;
  }
}

}  // namespace
}  // namespace tenon
