// The step tape: ops append fixed-size records while family code runs on one thread; Seal works out
// where the threads must meet and where each buffer lives; a team then executes the records as
// often as wanted. A tape is reused while shapes stay the same: what changes from step to step is
// read through fixed addresses (layout). In shape mode (the plan) a tape is recorded and sealed but
// never bound or run: no weight needs bytes. Not an optimiser: records run in the order of
// recording. Not thread-safe; Run uses the team's threads.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "tenon/base/team_size.h"
#include "tenon/base/thread_team.h"
#include "tenon/ops/value.h"

namespace tenon {

struct KernelTable;  // kernels/table.h, private to ops and attention

// Where a record finds one operand. Shared operands have one address; private ones a copy per
// thread, so that small row work (a norm of one token) is done by every thread for itself, without
// a meeting.
struct Operand {
  std::byte* base = nullptr;   // of thread 0; null until the tape is bound
  int64_t private_stride = 0;  // bytes between the threads' copies; 0: shared

  template <typename T>
  T* For(int thread) const {
    return reinterpret_cast<T*>(base + thread * private_stride);
  }
};

// What a record's function gets besides its arguments.
struct RunContext {
  int thread = 0;
  int threads = 1;  // that take part in this run
  std::byte* scratch =
      nullptr;  // this thread's, as many bytes as the record asked for, 64-byte aligned
};

// How a record is shared out over the team.
struct Work {
  int64_t items = 1;          // [0, items) is cut into ranges
  int64_t grain = 1;          // items taken at a time
  bool everyone = false;      // each thread does all of it, writing private values only
  bool by_row = false;        // item i reads and writes row i of its values, and no other row
  int64_t scratch_bytes = 0;  // per thread
  // Of matrix products: weights read, and operations (a multiply-add is two). For profiles; and
  // where weights are read, each thread starts with a long stretch of items (OwnItems).
  int64_t weight_bytes = 0;
  int64_t operations = 0;
};

// Rows taken at a time where a row is little work: neighbours, so that a thread reads runs of
// memory and claims seldom, and chunks enough for many threads.
constexpr int64_t RowGrain(int64_t rows) {
  constexpr int64_t kChunks = 64;
  return (rows + kChunks - 1) / kChunks;
}

// Identity of something outside the tape that records change: a cache pool, a state slot array.
using ResourceKey = const void*;

class Tape {
 public:
  static constexpr size_t kArgsBytes = 320;
  // Values of at most this many rows are worth computing by every thread for itself.
  static constexpr int64_t kEveryoneRows = 1;

  explicit Tape(const KernelTable& kernels) : kernels_(&kernels) {}
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  const KernelTable& kernels() const { return *kernels_; }

  // --- recording

  // A new shared value, or one with a private copy per thread.
  Value NewValue(DType dtype, const Shape& shape) { return NewBuffer(dtype, shape, false); }
  Value NewPrivateValue(DType dtype, const Shape& shape) { return NewBuffer(dtype, shape, true); }
  bool IsPrivate(const Value& value) const;

  // Keeps the value readable after Run (logits; taps of `logits --hidden` and `compare`).
  void Keep(const Value& value, std::string name);

  // A run of `kernel`-like work. Used through RecordBuilder below.
  struct Record {
    void (*run)(const std::byte* args, const RunContext& context, int64_t begin,
                int64_t end) = nullptr;
    alignas(16) std::array<std::byte, kArgsBytes> args{};
    Work work;
    bool meet_before = false;  // set by Seal
    // Item i makes rows [i * n, (i + 1) * n) of the record before it first; 0: none.
    int64_t rows_inside = 0;
    bool inside_next = false;  // set by Seal: the next record's items do this one's work
    const char* op = "";       // "matmul": for profiles and taps
    const char* kernel = "";   // "reference/matmul": for the plan and the dispatch counters
    const char* scope = "";    // path of the recording module
  };

  // Names the module whose ops are recorded next; restored by the caller. The string outlives the
  // tape. Returns the previous scope.
  const char* SetScope(const char* scope) { return std::exchange(scope_, scope); }

  // --- after recording

  // Places meetings and buffers for a team of `threads`. Once.
  void Seal(int threads);
  bool sealed() const { return sealed_; }
  int64_t arena_bytes() const { return arena_bytes_; }  // of all buffers, private copies included
  int64_t scratch_bytes() const { return scratch_bytes_; }  // of all threads
  int meetings() const;
  std::span<const Record> records() const { return records_; }

  // Gives the sealed tape its memory: arena_bytes() and scratch_bytes(), 64-byte aligned.
  void Bind(std::byte* arena, std::byte* scratch);
  // Executes the records; threads() of the team must be what Seal was told. Fewer of them work
  // while a busy neighbour makes that faster; results do not depend on it. Allocates nothing.
  void Run(ThreadTeam& team);
  // From now on Run measures each record. Allocates. Of a sealed tape.
  void Profile() {
    times_.resize(records_.size());
    spans_.resize(records_.size() * static_cast<size_t>(threads_));
  }
  // On thread 0, over all runs.
  struct RecordTime {
    int64_t runs = 0;
    int64_t wait_ns = 0;  // for the others, before the record
    int64_t work_ns = 0;
  };
  // [records], or empty.
  std::span<const RecordTime> times() const { return times_; }
  // Of the last run; steady clock. Zeros: the thread took no part.
  struct RecordSpan {
    int64_t begin_ns = 0;
    int64_t end_ns = 0;
  };
  // [threads, records], or empty.
  std::span<const RecordSpan> spans() const { return spans_; }

  // A kept value's bytes (thread 0's copy of a private one); valid between Run and the next Run.
  TensorView ViewOf(const Value& value) const;
  struct Kept {
    std::string name;
    Value value;
  };
  std::span<const Kept> kept() const { return kept_; }

 private:
  template <typename Args>
  friend class RecordBuilder;

  struct BufferInfo {
    int64_t bytes = 0;
    bool is_private = false;
    bool kept = false;
    int first_epoch = -1;  // between which meetings it lives
    int last_epoch = -1;
    int64_t offset = 0;  // in the arena
  };
  // The part of a buffer that an access touches: bytes [begin, end) of every `period`, as a slice
  // of columns does; period 0: all of it. Disjoint parts (q and k of a fused qkv) need no meeting.
  struct Footprint {
    int64_t period = 0;
    int64_t begin = 0;
    int64_t end = 0;
  };
  // One access of a record to a buffer (>= 0) or to an outside resource (< 0: ~index into
  // resources_).
  struct Access {
    int32_t record = 0;
    int32_t target = 0;
    bool writes = false;
    Footprint footprint;
  };
  // An operand inside a record's args that Bind must fill.
  struct Patch {
    int32_t record = 0;
    int32_t args_offset = 0;
    int32_t buffer = 0;
    int64_t offset = 0;
  };

  Value NewBuffer(DType dtype, const Shape& shape, bool is_private);
  // Whether the last record makes x row by row, all of it.
  bool Makes(const Value& x) const;
  int32_t ResourceTarget(ResourceKey key);
  static Footprint FootprintOf(const Value& value);
  // Whether the two must be ordered: one writes what the other touches.
  static bool Conflict(const Access& a, const Access& b);
  // Whether record r can do the work of the one before it, as it asked to.
  bool TakesIn(size_t r) const;
  void CheckPrivacy(const Access& access) const;
  bool IsPrivateTarget(int32_t target) const {
    return target >= 0 && buffers_[static_cast<size_t>(target)].is_private;
  }
  void PlaceMeetings();
  void PlaceBuffers(int threads);
  void Execute(ThreadTeam& team, int thread);
  static int64_t OwnItems(const Work& work, int threads);
  void RunItems(size_t index, const RunContext& context, int64_t begin, int64_t end);
  void RunRecord(size_t index, const RunContext& context);
  void ExecuteProfiled(ThreadTeam& team, const RunContext& context);

  const KernelTable* kernels_;
  const char* scope_ = "";
  std::vector<Record> records_;
  std::vector<Access> accesses_;  // in the order of records
  std::vector<Patch> patches_;
  std::vector<BufferInfo> buffers_;
  std::vector<ResourceKey> resources_;
  std::vector<Kept> kept_;
  std::vector<RecordTime> times_;
  std::vector<RecordSpan> spans_;
  TeamSize team_size_{1};
  bool sealed_ = false;
  int threads_ = 0;
  int64_t arena_bytes_ = 0;
  int64_t scratch_bytes_ = 0;
  int64_t scratch_per_thread_ = 0;
  std::byte* arena_ = nullptr;
  std::byte* scratch_ = nullptr;
  std::unique_ptr<std::atomic<int64_t>[]> claimed_;  // [records]: items handed out so far
};

// Fills one record: typed arguments, operands by value, outside resources; then Commit. `Args` is
// plain data of at most Tape::kArgsBytes, its Operand members are filled by Read and Write.
template <typename Args>
class RecordBuilder {
  static_assert(std::is_trivially_copyable_v<Args> && sizeof(Args) <= Tape::kArgsBytes);

 public:
  using Function = void (*)(const Args& args, const RunContext& context, int64_t begin,
                            int64_t end);

  RecordBuilder(Tape& tape, const char* op, const char* kernel) : tape_(tape) {
    record_.op = op;
    record_.kernel = kernel;
    record_.scope = tape.scope_;
  }
  Args& args() { return args_; }

  RecordBuilder& Read(Operand Args::*member, const Value& value) {
    return Add(member, value, false);
  }
  RecordBuilder& Write(Operand Args::*member, const Value& value) {
    return Add(member, value, true);
  }
  // Both: the op works in place.
  RecordBuilder& Update(Operand Args::*member, const Value& value) {
    return Add(member, value, true);
  }
  RecordBuilder& ReadResource(ResourceKey key) {
    return AddAccess(tape_.ResourceTarget(key), false, {});
  }
  RecordBuilder& WriteResource(ResourceKey key) {
    return AddAccess(tape_.ResourceTarget(key), true, {});
  }
  // Item i needs rows [i * rows, (i + 1) * rows) of x and no others. If the record before this one
  // makes x by row, the item makes them itself: the two become one, without a meeting.
  RecordBuilder& TakeRowsOf(const Value& x, int64_t rows) {
    if (tape_.Makes(x)) record_.rows_inside = rows;
    return *this;
  }
  // An operand member of an array: `args().addends[i]`.
  RecordBuilder& ReadInto(Operand& operand, const Value& value) {
    return AddAt(operand, value, false);
  }
  RecordBuilder& WriteInto(Operand& operand, const Value& value) {
    return AddAt(operand, value, true);
  }

  template <Function kFunction>
  void Commit(const Work& work) {
    TN_CHECK(!tape_.sealed(), "a sealed tape takes no records");
    record_.run = [](const std::byte* args, const RunContext& context, int64_t begin, int64_t end) {
      kFunction(*reinterpret_cast<const Args*>(args), context, begin, end);
    };
    record_.work = work;
    std::memcpy(record_.args.data(), &args_, sizeof(Args));
    tape_.records_.push_back(record_);
  }

 private:
  RecordBuilder& Add(Operand Args::*member, const Value& value, bool writes) {
    return AddAt(args_.*member, value, writes);
  }
  RecordBuilder& AddAt(Operand& operand, const Value& value, bool writes) {
    TN_CHECK(!value.empty(), "an operand needs a value of this tape");
    const auto at =
        reinterpret_cast<const std::byte*>(&operand) - reinterpret_cast<const std::byte*>(&args_);
    tape_.patches_.push_back(
        {Index(), static_cast<int32_t>(at), value.buffer(), value.offset_bytes()});
    return AddAccess(value.buffer(), writes, Tape::FootprintOf(value));
  }
  RecordBuilder& AddAccess(int32_t target, bool writes, const Tape::Footprint& footprint) {
    tape_.accesses_.push_back({Index(), target, writes, footprint});
    return *this;
  }
  int32_t Index() const { return static_cast<int32_t>(tape_.records_.size()); }

  Tape& tape_;
  Tape::Record record_;
  Args args_{};
};

}  // namespace tenon
