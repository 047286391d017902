#include "tenon/ops/tape.h"
#include "support/isa.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <vector>

#include "tenon/ops/kernel_choice.h"
#include "tenon/tensor/buffer.h"

namespace tenon {
namespace {

// Toy records over int64 vectors, so that every expected value can be computed by plain code.
struct AddArgs {
  Operand a, b, y;
  int64_t n = 0;
  int64_t constant = 0;
};
void RunAdd(const AddArgs& args, const RunContext& context, int64_t begin, int64_t end) {
  const auto* a = args.a.For<int64_t>(context.thread);
  const auto* b = args.b.For<int64_t>(context.thread);
  auto* y = args.y.For<int64_t>(context.thread);
  for (int64_t i = begin; i < end; ++i) y[i] = a[i] + b[i] + args.constant;
}
// Reads all of a: depends on what every thread wrote.
void RunReverseSum(const AddArgs& args, const RunContext& context, int64_t begin, int64_t end) {
  const auto* a = args.a.For<int64_t>(context.thread);
  const auto* b = args.b.For<int64_t>(context.thread);
  auto* y = args.y.For<int64_t>(context.thread);
  for (int64_t i = begin; i < end; ++i)
    y[i] = a[args.n - 1 - i] + b[(i + 1) % args.n] + args.constant;
}

constexpr int64_t kN = 37;

template <RecordBuilder<AddArgs>::Function kFunction>
Value Record(Tape& tape, const Value& a, const Value& b, int64_t constant, bool everyone) {
  const Value y =
      everyone ? tape.NewPrivateValue(DType::kI64, {kN}) : tape.NewValue(DType::kI64, {kN});
  RecordBuilder<AddArgs> record(tape, "test", "test");
  record.args().n = kN;
  record.args().constant = constant;
  record.Read(&AddArgs::a, a).Read(&AddArgs::b, b).Write(&AddArgs::y, y);
  record.Commit<kFunction>({.items = kN, .grain = 5, .everyone = everyone});
  return y;
}

const KernelTable& Kernels() { return KernelsFor(test::TestIsa()); }

struct FillArgs {
  Operand y;
};
void RunFill(const FillArgs& args, const RunContext& context, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) args.y.For<int64_t>(context.thread)[i] = 1000 + i;
}
Value Fill(Tape& tape) {
  const Value y = tape.NewValue(DType::kI64, {kN});
  RecordBuilder<FillArgs> record(tape, "fill", "test");
  record.Write(&FillArgs::y, y);
  record.Commit<RunFill>({.items = kN, .grain = 4});
  return y;
}

// Random programs give the same numbers as a plain interpreter, for any team and however often they
// run.
TEST(Tape, RandomProgramsEqualPlainCode) {
  EXPECT_TRUE(rc::check([] {
    const int threads = *rc::gen::inRange(1, 4);
    const int steps = *rc::gen::inRange(1, 25);
    Tape tape(Kernels());
    std::vector<Value> values = {Fill(tape)};
    std::vector<std::vector<int64_t>> expected(1, std::vector<int64_t>(kN));
    std::iota(expected[0].begin(), expected[0].end(), 1000);
    for (int s = 0; s < steps; ++s) {
      const auto ia = *rc::gen::inRange<size_t>(0, values.size());
      const auto ib = *rc::gen::inRange<size_t>(0, values.size());
      const bool everyone = *rc::gen::inRange(0, 3) == 0;
      const bool reverse = *rc::gen::arbitrary<bool>();
      values.push_back(reverse ? Record<RunReverseSum>(tape, values[ia], values[ib], s, everyone)
                               : Record<RunAdd>(tape, values[ia], values[ib], s, everyone));
      std::vector<int64_t> y(kN);
      for (int64_t i = 0; i < kN; ++i) {
        const auto at = [](int64_t j) { return static_cast<size_t>(j); };
        y[at(i)] = (reverse ? expected[ia][at(kN - 1 - i)] + expected[ib][at((i + 1) % kN)]
                            : expected[ia][at(i)] + expected[ib][at(i)]) +
                   s;
      }
      expected.push_back(y);
    }
    const auto watched = *rc::gen::inRange<size_t>(0, values.size());
    tape.Keep(values[watched], "watched");
    tape.Keep(values.back(), "last");
    tape.Seal(threads);
    const Buffer arena = *Buffer::AllocateZeroed(tape.arena_bytes(), "test");
    tape.Bind(arena.data(), nullptr);
    ThreadTeam team(threads);
    for (int repeat = 0; repeat < 3; ++repeat) {
      tape.Run(team);
      for (const size_t which : {watched, values.size() - 1}) {
        const auto* y = tape.ViewOf(values[which]).as<int64_t>();
        RC_ASSERT(std::vector<int64_t>(y, y + kN) == expected[which]);
      }
    }
  }));
}

// --- programs over slices, some in place

constexpr int64_t kRows = 6;
constexpr int64_t kColumns = 12;

struct MixArgs {
  Operand from, to;
  int64_t width = 0;
  int64_t constant = 0;
};
// to[r, i] = 3 * to[r, i] + from[kRows - 1 - r, i] + constant: reads what other threads wrote.
void RunMix(const MixArgs& args, const RunContext& context, int64_t begin, int64_t end) {
  const auto* from = args.from.For<int64_t>(context.thread);
  auto* to = args.to.For<int64_t>(context.thread);
  for (int64_t r = begin; r < end; ++r) {
    for (int64_t i = 0; i < args.width; ++i) {
      int64_t& target = to[r * kColumns + i];
      target = 3 * target + from[(kRows - 1 - r) * kColumns + i] + args.constant;
    }
  }
}
struct StartArgs {
  Operand y;
  int64_t first = 0;
};
void RunStart(const StartArgs& args, const RunContext& context, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) args.y.For<int64_t>(context.thread)[i] = args.first + i;
}

// The columns of a value that a record touches, for an independent opinion on meetings.
struct Touch {
  size_t value = 0;
  int64_t begin = 0, end = 0;
  bool writes = false;
};

bool MustBeOrdered(const std::vector<Touch>& a, const std::vector<Touch>& b,
                   const std::vector<bool>& is_private) {
  for (const Touch& p : a) {
    for (const Touch& q : b) {
      const bool overlap = p.value == q.value && p.begin < q.end && q.begin < p.end;
      if (overlap && (p.writes || q.writes) && !is_private[p.value]) return true;
    }
  }
  return false;
}

struct SliceProgram {
  explicit SliceProgram(Tape& on) : tape(on) {}

  Tape& tape;
  std::vector<Value> values;
  std::vector<bool> is_private;
  std::vector<std::vector<int64_t>> expected;  // [kRows, kColumns] each
  std::vector<std::vector<Touch>> touches;     // of each record

  void Start(bool everyone) {
    const Shape shape{kRows, kColumns};
    const Value y =
        everyone ? tape.NewPrivateValue(DType::kI64, shape) : tape.NewValue(DType::kI64, shape);
    const int64_t first = 100 * static_cast<int64_t>(values.size());
    RecordBuilder<StartArgs> record(tape, "start", "test");
    record.args().first = first;
    record.Write(&StartArgs::y, y);
    record.Commit<RunStart>({.items = kRows * kColumns, .grain = 5, .everyone = everyone});
    touches.push_back({{values.size(), 0, kColumns, true}});
    values.push_back(y);
    is_private.push_back(everyone);
    std::vector<int64_t>& numbers = expected.emplace_back(kRows * kColumns);
    std::iota(numbers.begin(), numbers.end(), first);
  }

  void Mix(const Touch& from, const Touch& to, int64_t constant) {
    RecordBuilder<MixArgs> record(tape, "mix", "test");
    record.args().width = to.end - to.begin;
    record.args().constant = constant;
    record.Read(&MixArgs::from, values[from.value].Slice(1, from.begin, from.end));
    record.Update(&MixArgs::to, values[to.value].Slice(1, to.begin, to.end));
    record.Commit<RunMix>({.items = kRows, .everyone = is_private[to.value]});
    touches.push_back({from, to});
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t i = 0; i < to.end - to.begin; ++i) {
        auto& target = expected[to.value][static_cast<size_t>(r * kColumns + to.begin + i)];
        const auto source = static_cast<size_t>((kRows - 1 - r) * kColumns + from.begin + i);
        target = 3 * target + expected[from.value][source] + constant;
      }
    }
  }

  // Records between two meetings need no order, and every meeting separates two that do.
  void CheckMeetings() const {
    const auto records = tape.records();
    size_t epoch_begin = 0;
    for (size_t r = 0; r < records.size(); ++r) {
      bool needed = false;
      for (size_t other = epoch_begin; other < r; ++other) {
        needed |= MustBeOrdered(touches[other], touches[r], is_private);
      }
      RC_ASSERT(records[r].meet_before == needed);
      if (records[r].meet_before) epoch_begin = r;
    }
  }
};

TEST(Tape, RandomProgramsOverSlices) {
  EXPECT_TRUE(rc::check([] {
    const int threads = *rc::gen::inRange(1, 4);
    const int steps = *rc::gen::inRange(0, 25);
    Tape tape(Kernels());
    SliceProgram program(tape);
    program.Start(false);
    program.Start(true);
    program.Start(false);
    for (int s = 0; s < steps; ++s) {
      Touch from{*rc::gen::inRange<size_t>(0, 3), *rc::gen::inRange<int64_t>(0, 9), 0, false};
      const Touch to{*rc::gen::inRange<size_t>(0, 3), *rc::gen::inRange<int64_t>(0, 9), 0, true};
      const int64_t width = *rc::gen::inRange<int64_t>(1, 4);
      // A record may not read what its other threads write.
      if (from.value == to.value && std::abs(from.begin - to.begin) < width) {
        from.value = (from.value + 1) % 3;
      }
      program.Mix({from.value, from.begin, from.begin + width, false},
                  {to.value, to.begin, to.begin + width, true}, s);
    }
    for (const Value& value : program.values) tape.Keep(value, "value");
    tape.Seal(threads);
    program.CheckMeetings();
    const Buffer arena = *Buffer::AllocateZeroed(tape.arena_bytes(), "test");
    tape.Bind(arena.data(), nullptr);
    ThreadTeam team(threads);
    for (int repeat = 0; repeat < 2; ++repeat) {
      tape.Run(team);
      for (size_t v = 0; v < program.values.size(); ++v) {
        const auto* y = tape.ViewOf(program.values[v]).as<int64_t>();
        RC_ASSERT(std::vector<int64_t>(y, y + kRows * kColumns) == program.expected[v]);
      }
    }
  }));
}

TEST(Tape, PrivateWorkNeedsNoMeeting) {
  Tape tape(Kernels());
  const Value x = Fill(tape);
  const Value a = Record<RunAdd>(tape, x, x, 0, true);         // meets: x was written by all
  const Value b = Record<RunReverseSum>(tape, a, a, 0, true);  // private to private: no meeting
  const Value c = Record<RunAdd>(tape, b, b, 0, false);        // each thread reads its own copy
  Record<RunReverseSum>(tape, c, c, 0, false);                 // meets: c was written by all
  tape.Seal(2);
  const auto records = tape.records();
  EXPECT_TRUE(records[1].meet_before);
  EXPECT_FALSE(records[2].meet_before);
  EXPECT_FALSE(records[3].meet_before);
  EXPECT_TRUE(records[4].meet_before);
  EXPECT_EQ(tape.meetings(), 2);
}

void RunCount(const FillArgs& args, const RunContext& context, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) args.y.For<int64_t>(context.thread)[i] = i;
}
// Rows that a second record's items take in.
struct RowArgs {
  Operand x, y;
  int64_t columns = 0;
  int64_t rows = 0;   // of x
  int64_t taken = 1;  // rows of an item
};
void RunTriple(const RowArgs& args, const RunContext& context, int64_t begin, int64_t end) {
  for (int64_t i = begin * args.columns; i < end * args.columns; ++i)
    args.y.For<int64_t>(context.thread)[i] = 3 * args.x.For<int64_t>(context.thread)[i] + 1;
}
void RunSumRows(const RowArgs& args, const RunContext& context, int64_t begin, int64_t end) {
  for (int64_t item = begin; item < end; ++item) {
    int64_t sum = 0;
    const int64_t last = std::min(args.rows, (item + 1) * args.taken) * args.columns;
    for (int64_t i = item * args.taken * args.columns; i < last; ++i)
      sum += args.x.For<int64_t>(context.thread)[i];
    args.y.For<int64_t>(context.thread)[item] = sum;
  }
}

struct RowProgram {
  int64_t rows = 1, columns = 1, taken = 1;
  bool by_row = true;    // the first record says so
  bool another = false;  // a record lies between the two

  // Seals and runs; the tape's records tell what became of the two.
  void Check(Tape& tape, int threads) const {
    const Value x = tape.NewValue(DType::kI64, {rows, columns});
    RecordBuilder<FillArgs> fill(tape, "fill", "test");
    fill.Write(&FillArgs::y, x).Commit<RunCount>({.items = rows * columns});
    const Value tripled = tape.NewValue(DType::kI64, {rows, columns});
    RecordBuilder<RowArgs> triple(tape, "triple", "test");
    triple.args() = {{}, {}, columns, rows, 1};
    triple.Read(&RowArgs::x, x).Write(&RowArgs::y, tripled);
    triple.Commit<RunTriple>({.items = rows, .grain = 2, .by_row = by_row});
    if (another) Fill(tape);
    const int64_t items = (rows + taken - 1) / taken;
    const Value sums = tape.NewValue(DType::kI64, {items});
    RecordBuilder<RowArgs> sum(tape, "sum", "test");
    sum.args() = {{}, {}, columns, rows, taken};
    sum.Read(&RowArgs::x, tripled).Write(&RowArgs::y, sums).TakeRowsOf(tripled, taken);
    sum.Commit<RunSumRows>({.items = items});
    tape.Keep(sums, "sums");
    tape.Keep(tripled, "tripled");
    tape.Seal(threads);
    const Buffer arena = *Buffer::AllocateZeroed(tape.arena_bytes(), "test");
    tape.Bind(arena.data(), nullptr);
    ThreadTeam team(threads);
    for (int repeat = 0; repeat < 2; ++repeat) {
      tape.Run(team);
      std::vector<int64_t> expected(static_cast<size_t>(items));
      for (int64_t i = 0; i < rows * columns; ++i) {
        RC_ASSERT(tape.ViewOf(tripled).as<int64_t>()[i] == 3 * i + 1);
        expected[static_cast<size_t>(i / columns / taken)] += 3 * i + 1;
      }
      const auto* y = tape.ViewOf(sums).as<int64_t>();
      RC_ASSERT(std::vector<int64_t>(y, y + items) == expected);
    }
  }
};

TEST(Tape, ARecordTakesInTheRowsOfTheOneBefore) {
  EXPECT_TRUE(rc::check([] {
    RowProgram program;
    program.rows = *rc::gen::inRange<int64_t>(1, 40);
    program.columns = *rc::gen::inRange<int64_t>(1, 4);
    program.taken = *rc::gen::inRange<int64_t>(1, 9);
    program.by_row = *rc::gen::inRange(0, 4) > 0;
    program.another = *rc::gen::inRange(0, 4) == 0;
    Tape tape(Kernels());
    program.Check(tape, *rc::gen::inRange(1, 4));
    const Tape::Record& sum = tape.records().back();
    const bool fused = program.by_row && !program.another;
    RC_ASSERT(tape.records()[1].inside_next == fused);
    RC_ASSERT((sum.rows_inside > 0) == fused);
    RC_ASSERT(sum.meet_before == !fused);
  }));
}

TEST(Tape, ResourcesOrderRecords) {
  static const int pool = 0;
  Tape tape(Kernels());
  Fill(tape);
  RecordBuilder<FillArgs> writer(tape, "append", "test");
  writer.Write(&FillArgs::y, tape.NewValue(DType::kI64, {kN})).WriteResource(&pool);
  writer.Commit<RunFill>({.items = kN});
  RecordBuilder<FillArgs> reader(tape, "attend", "test");
  reader.Write(&FillArgs::y, tape.NewValue(DType::kI64, {kN})).ReadResource(&pool);
  reader.Commit<RunFill>({.items = kN});
  tape.Seal(2);
  EXPECT_FALSE(tape.records()[1].meet_before);
  EXPECT_TRUE(tape.records()[2].meet_before);
}

TEST(Tape, DeadBuffersAreReused) {
  Tape tape(Kernels());
  Value x = Fill(tape);
  for (int i = 0; i < 50; ++i) x = Record<RunReverseSum>(tape, x, x, 1, false);
  tape.Seal(1);
  EXPECT_LE(tape.arena_bytes(), 3 * RoundUp(kN * 8, Buffer::kAlignment));
}

struct ScratchArgs {
  Operand y;
};
// Writes its thread's scratch to the last byte, then shows that nobody else did.
void RunScratch(const ScratchArgs& args, const RunContext& context, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    std::memset(context.scratch, context.thread, 200);
    bool own = reinterpret_cast<uintptr_t>(context.scratch) % 64 == 0;
    for (int at = 0; at < 200; ++at) own &= context.scratch[at] == std::byte(context.thread);
    args.y.For<int64_t>(context.thread)[i] = own && context.threads == 3 ? 1 : 0;
  }
}

TEST(Tape, EachThreadHasItsScratch) {
  Tape tape(Kernels());
  const Value y = tape.NewValue(DType::kI64, {1000});
  RecordBuilder<ScratchArgs> record(tape, "scratch", "test");
  record.Write(&ScratchArgs::y, y);
  record.Commit<RunScratch>({.items = 1000, .scratch_bytes = 200});
  tape.Keep(y, "y");
  tape.Seal(3);
  const Buffer arena = *Buffer::AllocateZeroed(tape.arena_bytes(), "test");
  const Buffer scratch = *Buffer::AllocateZeroed(tape.scratch_bytes(), "test");
  tape.Bind(arena.data(), scratch.data());
  ThreadTeam team(3);
  tape.Run(team);
  const auto* values = tape.ViewOf(y).as<int64_t>();
  EXPECT_EQ(std::count(values, values + 1000, 1), 1000);
}

struct CountArgs {
  std::atomic<int64_t>* runs = nullptr;   // of ranges that start with the first item
  std::atomic<int64_t>* items = nullptr;  // [items]: how often each was done
};
void RunCount(const CountArgs& args, const RunContext& /*context*/, int64_t begin, int64_t end) {
  ASSERT_LT(begin, end);
  if (begin == 0) ++*args.runs;
  for (int64_t i = begin; i < end; ++i) ++args.items[i];
}

// Each item is done once and by a range that is not empty, whether weights are read or not: what a
// record does once per step it does where a range starts with the first item.
TEST(Tape, EveryItemOnce) {
  for (const int threads : {1, 2, 3, 7}) {
    for (const int64_t items : {1, 2, 5, 64, 100}) {
      for (const int64_t grain : {1, 4, 200}) {
        for (const int64_t weight_bytes : {0, 1000}) {
          std::atomic<int64_t> runs = 0;
          std::vector<std::atomic<int64_t>> done(static_cast<size_t>(items));
          Tape tape(Kernels());
          RecordBuilder<CountArgs> record(tape, "test", "test");
          record.args() = {&runs, done.data()};
          record.Commit<RunCount>({.items = items, .grain = grain, .weight_bytes = weight_bytes});
          tape.Seal(threads);
          tape.Bind(nullptr, nullptr);
          ThreadTeam team(threads);
          tape.Run(team);
          EXPECT_EQ(runs, 1);
          for (const auto& count : done) EXPECT_EQ(count, 1);
        }
      }
    }
  }
}

TEST(Tape, NamesItsRecords) {
  Tape tape(Kernels());
  EXPECT_STREQ(tape.SetScope("model.layers.3"), "");
  Fill(tape);
  EXPECT_STREQ(tape.SetScope(""), "model.layers.3");
  Fill(tape);
  EXPECT_STREQ(tape.records()[0].scope, "model.layers.3");
  EXPECT_STREQ(tape.records()[0].op, "fill");
  EXPECT_STREQ(tape.records()[1].scope, "");
}

// Our own mistakes are found while the tape is sealed, not as a race.
TEST(TapeDeathTest, PrivateAndEveryoneBelongTogether) {
  const auto seal = [](bool is_private, bool everyone) {
    Tape tape(Kernels());
    RecordBuilder<FillArgs> record(tape, "fill", "test");
    record.Write(&FillArgs::y, is_private ? tape.NewPrivateValue(DType::kI64, {kN})
                                          : tape.NewValue(DType::kI64, {kN}));
    record.Commit<RunFill>({.items = kN, .everyone = everyone});
    tape.Seal(2);
  };
  seal(false, false);
  seal(true, true);
  EXPECT_DEATH(seal(false, true), "everyone");
  EXPECT_DEATH(seal(true, false), "everyone");
}

TEST(Value, ViewsOfOneBuffer) {
  Tape tape(Kernels());
  const Value qkv = tape.NewValue(DType::kF32, {5, 24});
  const Value k = qkv.Slice(1, 16, 20);
  EXPECT_EQ(k.offset_bytes(), 64);
  EXPECT_EQ(k.stride_bytes(0), 96);
  const Value heads = qkv.Slice(1, 0, 16).SplitLast(4, 4);
  EXPECT_EQ(heads.shape(), Shape({5, 4, 4}));
  EXPECT_EQ(heads.stride_bytes(0), 96);
  EXPECT_EQ(heads.stride_bytes(1), 16);
  EXPECT_EQ(heads.MergeLast().shape(), Shape({5, 16}));
}

}  // namespace
}  // namespace tenon
