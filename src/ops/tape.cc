#include "tenon/ops/tape.h"

#include <algorithm>
#include <chrono>

#include "tenon/tensor/buffer.h"

namespace tenon {

Value Value::Slice(int dim, int64_t begin, int64_t end) const {
  if (dim < 0) dim += shape().rank();
  Value value(view_.Slice(dim, begin, end), buffer_, offset_);
  const bool last = dim == shape().rank() - 1;
  value.offset_ += last ? RowBytes(dtype(), begin) : begin * stride_bytes(dim);
  return value;
}

Value Value::SplitLast(int64_t outer, int64_t inner) const {
  return {view_.SplitLast(outer, inner), buffer_, offset_};
}

Value Value::MergeLast() const { return {view_.MergeLast(), buffer_, offset_}; }

Value Tape::NewBuffer(DType dtype, const Shape& shape, bool is_private) {
  TN_CHECK(!sealed_, "a sealed tape takes no values");
  const TensorView view = TensorView::Meta(dtype, shape);
  buffers_.push_back({.bytes = RoundUp(std::max<int64_t>(view.bytes(), 1), Buffer::kAlignment),
                      .is_private = is_private});
  return {view, static_cast<int32_t>(buffers_.size() - 1), 0};
}

bool Tape::IsPrivate(const Value& value) const {
  TN_CHECK(!value.empty(), "a value of this tape");
  return buffers_[static_cast<size_t>(value.buffer())].is_private;
}

void Tape::Keep(const Value& value, std::string name) {
  TN_CHECK(!sealed_ && !value.empty(), "values are kept before the tape is sealed");
  buffers_[static_cast<size_t>(value.buffer())].kept = true;
  kept_.push_back({std::move(name), value});
}

int32_t Tape::ResourceTarget(ResourceKey key) {
  const auto it = std::find(resources_.begin(), resources_.end(), key);
  const auto index = static_cast<int32_t>(it - resources_.begin());
  if (it == resources_.end()) resources_.push_back(key);
  return ~index;
}

Tape::Footprint Tape::FootprintOf(const Value& value) {
  const int rank = value.shape().rank();
  if (rank < 2 || value.stride_bytes(0) == 0) return {};
  const int64_t period = value.stride_bytes(0);
  int64_t extent = RowBytes(value.dtype(), value.dim(-1));
  for (int i = 1; i < rank - 1; ++i) {
    if (value.dim(i) == 0) return {};
    extent += (value.dim(i) - 1) * value.stride_bytes(i);
  }
  const int64_t begin = value.offset_bytes() % period;
  if (begin + extent > period) return {};
  return {period, begin, begin + extent};
}

bool Tape::Conflict(const Access& a, const Access& b) {
  if (!a.writes && !b.writes) return false;
  const Footprint& p = a.footprint;
  const Footprint& q = b.footprint;
  const bool disjoint =
      p.period != 0 && p.period == q.period && (p.end <= q.begin || q.end <= p.begin);
  return !disjoint;
}

bool Tape::Makes(const Value& x) const {
  if (records_.empty()) return false;
  const Work& work = records_.back().work;
  const auto last = static_cast<int32_t>(records_.size()) - 1;
  return work.by_row && !work.everyone && work.items == x.dim(0) &&
         std::any_of(accesses_.begin(), accesses_.end(), [&](const Access& access) {
           return access.record == last && access.writes && access.target == x.buffer();
         });
}

bool Tape::TakesIn(size_t r) const {
  const Record& record = records_[r];
  if (record.rows_inside == 0 || record.work.everyone) return false;
  return !records_[r - 1].inside_next && records_[r - 1].rows_inside == 0 &&
         record.work.items * record.rows_inside >= records_[r - 1].work.items;
}

void Tape::CheckPrivacy(const Access& access) const {
  if (!access.writes) return;
  TN_CHECK(
      IsPrivateTarget(access.target) == records_[static_cast<size_t>(access.record)].work.everyone,
      "work done by everyone writes private values only, and only everyone writes those");
}

// A meeting separates a record from an earlier one of the same epoch when one of them writes what
// the other touches. Private values need none: a thread only ever sees its own copy.
void Tape::PlaceMeetings() {
  struct State {
    int epoch = -1;
    std::vector<const Access*> accesses;  // in this epoch
  };
  std::vector<State> buffers(buffers_.size());
  std::vector<State> resources(resources_.size());
  const auto state_of = [&](int32_t target) -> State& {
    const int32_t index = target >= 0 ? target : ~target;
    return (target >= 0 ? buffers : resources)[static_cast<size_t>(index)];
  };
  int epoch = 0;
  size_t next = 0;
  for (size_t r = 0; r < records_.size(); ++r) {
    const size_t begin = next;
    while (next < accesses_.size() && accesses_[next].record == static_cast<int32_t>(r)) ++next;
    bool meet = false;
    const bool takes_in = TakesIn(r);
    for (size_t i = begin; i < next; ++i) {
      const Access& access = accesses_[i];
      CheckPrivacy(access);
      if (IsPrivateTarget(access.target)) continue;
      const State& state = state_of(access.target);
      meet |= state.epoch == epoch &&
              std::any_of(state.accesses.begin(), state.accesses.end(), [&](const Access* other) {
                const bool inside =
                    takes_in && !access.writes && other->record + 1 == static_cast<int32_t>(r);
                return !inside && Conflict(access, *other);
              });
    }
    // What must wait for others does not take in what need not.
    if (meet) ++epoch;
    if (takes_in && !meet) {
      records_[r - 1].inside_next = true;
    } else {
      records_[r].rows_inside = 0;
    }
    records_[r].meet_before = meet;
    for (size_t i = begin; i < next; ++i) {
      const Access& access = accesses_[i];
      State& state = state_of(access.target);
      if (state.epoch != epoch) state.accesses.clear();
      state.epoch = epoch;
      state.accesses.push_back(&access);
      if (access.target < 0) continue;
      BufferInfo& buffer = buffers_[static_cast<size_t>(access.target)];
      if (buffer.first_epoch < 0) buffer.first_epoch = epoch;
      buffer.last_epoch = epoch;
    }
  }
  for (BufferInfo& buffer : buffers_) {
    if (buffer.kept) buffer.last_epoch = epoch;
  }
}

// First fit by decreasing size. Two buffers may share bytes when a meeting lies between their
// lives, so sharing never adds a meeting.
void Tape::PlaceBuffers(int threads) {
  std::vector<size_t> order;
  for (size_t i = 0; i < buffers_.size(); ++i) {
    if (buffers_[i].first_epoch >= 0) order.push_back(i);
  }
  const auto size_of = [&](const BufferInfo& b) {
    return b.is_private ? b.bytes * threads : b.bytes;
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return size_of(buffers_[a]) > size_of(buffers_[b]); });
  std::vector<const BufferInfo*> placed;  // by offset
  for (const size_t index : order) {
    BufferInfo& buffer = buffers_[index];
    int64_t offset = 0;
    for (const BufferInfo* other : placed) {
      const bool together =
          other->first_epoch <= buffer.last_epoch && buffer.first_epoch <= other->last_epoch;
      if (!together) continue;
      if (offset + size_of(buffer) <= other->offset) break;
      offset = std::max(offset, other->offset + size_of(*other));
    }
    buffer.offset = offset;
    arena_bytes_ = std::max(arena_bytes_, offset + size_of(buffer));
    placed.insert(std::upper_bound(placed.begin(), placed.end(), &buffer,
                                   [](const BufferInfo* a, const BufferInfo* b) {
                                     return a->offset < b->offset;
                                   }),
                  &buffer);
  }
}

void Tape::Seal(int threads) {
  TN_CHECK(!sealed_, "a tape is sealed once");
  sealed_ = true;
  threads_ = threads;
  team_size_ = TeamSize(threads);
  PlaceMeetings();
  PlaceBuffers(threads);
  for (const Record& record : records_) {
    scratch_per_thread_ = std::max(scratch_per_thread_, record.work.scratch_bytes);
  }
  scratch_per_thread_ = RoundUp(scratch_per_thread_, Buffer::kAlignment);
  scratch_bytes_ = scratch_per_thread_ * threads;
  claimed_ = std::make_unique<std::atomic<int64_t>[]>(records_.size());
}

int Tape::meetings() const {
  return static_cast<int>(std::count_if(records_.begin(), records_.end(),
                                        [](const Record& r) { return r.meet_before; }));
}

void Tape::Bind(std::byte* arena, std::byte* scratch) {
  TN_CHECK(sealed_, "seal before binding");
  TN_CHECK(reinterpret_cast<uintptr_t>(arena) % Buffer::kAlignment == 0 &&
               reinterpret_cast<uintptr_t>(scratch) % Buffer::kAlignment == 0,
           "the tape's memory is 64-byte aligned");
  arena_ = arena;
  scratch_ = scratch;
  for (const Patch& patch : patches_) {
    const BufferInfo& buffer = buffers_[static_cast<size_t>(patch.buffer)];
    const Operand operand{arena + buffer.offset + patch.offset,
                          buffer.is_private ? buffer.bytes : 0};
    Record& record = records_[static_cast<size_t>(patch.record)];
    std::memcpy(record.args.data() + patch.args_offset, &operand, sizeof operand);
  }
}

void Tape::Run(ThreadTeam& team) {
  TN_CHECK(arena_ != nullptr || arena_bytes_ == 0, "bind before running");
  TN_CHECK(team.threads() == threads_, "a tape runs with the team size it was sealed for");
  for (size_t i = 0; i < records_.size(); ++i) claimed_[i].store(0, std::memory_order_relaxed);
  const uint64_t waited = team.waited();
  const uint64_t begin = Ticks();
  std::fill(spans_.begin(), spans_.end(), RecordSpan{});
  team.Run(team_size_.size(), [&](int thread) { Execute(team, thread); });
  team_size_.Report(Ticks() - begin, team.waited() - waited);
}

// Items of a product that each thread starts with: half of a fair share, so that it reads one long
// stretch of weights, and that no more than this waits for a thread that something else holds up.
int64_t Tape::OwnItems(const Work& work, int threads) {
  if (work.weight_bytes == 0) return 0;
  return work.items / (int64_t{2} * threads) / work.grain * work.grain;
}

void Tape::RunItems(size_t index, const RunContext& context, int64_t begin, int64_t end) {
  const Record& record = records_[index];
  if (record.rows_inside > 0) {
    const Record& before = records_[index - 1];
    before.run(before.args.data(), context, begin * record.rows_inside,
               std::min(end * record.rows_inside, before.work.items));
  }
  record.run(record.args.data(), context, begin, end);
}

void Tape::RunRecord(size_t index, const RunContext& context) {
  const Record& record = records_[index];
  if (record.inside_next) return;
  const int64_t items = record.work.items;
  if (record.work.everyone) {
    record.run(record.args.data(), context, 0, items);
    return;
  }
  const int64_t own = OwnItems(record.work, context.threads);
  const int64_t first = context.thread * own;
  if (own > 0 && first < items) {
    RunItems(index, context, first, std::min(first + own, items));
  }
  const int64_t grain = record.work.grain;
  for (;;) {
    const int64_t begin =
        context.threads * own + claimed_[index].fetch_add(grain, std::memory_order_relaxed);
    if (begin >= items) return;
    RunItems(index, context, begin, std::min(begin + grain, items));
  }
}

void Tape::Execute(ThreadTeam& team, int thread) {
  const RunContext context{thread, team_size_.size(),
                           scratch_ == nullptr ? nullptr : scratch_ + thread * scratch_per_thread_};
  if (!times_.empty()) return ExecuteProfiled(team, context);
  for (size_t i = 0; i < records_.size(); ++i) {
    if (records_[i].meet_before) team.Meet();
    RunRecord(i, context);
  }
}

void Tape::ExecuteProfiled(ThreadTeam& team, const RunContext& context) {
  const auto now = [] {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  };
  RecordSpan* spans = spans_.data() + static_cast<size_t>(context.thread) * records_.size();
  int64_t last = now();
  for (size_t i = 0; i < records_.size(); ++i) {
    if (records_[i].meet_before) team.Meet();
    const int64_t begin = now();
    RunRecord(i, context);
    const int64_t end = now();
    spans[i] = {begin, end};
    if (context.thread == 0) {
      ++times_[i].runs;
      times_[i].wait_ns += begin - last;
      times_[i].work_ns += end - begin;
    }
    last = end;
  }
}

TensorView Tape::ViewOf(const Value& value) const {
  TN_CHECK(arena_ != nullptr, "bind before reading");
  const BufferInfo& buffer = buffers_[static_cast<size_t>(value.buffer())];
  return value.view_.WithData(arena_ + buffer.offset + value.offset_);
}

}  // namespace tenon
