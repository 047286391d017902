#include "tenon/ops/tape.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <numeric>

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

const KernelTable& Kernels() { return **KernelsFor(Isa::kReference); }

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
  rc::check([] {
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
  });
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
