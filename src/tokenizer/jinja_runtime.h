// One render's account: makes values, counts their memory and the work done, and ends the render
// when a limit is passed. Also what every filter, test and method may ask for (escaping mode,
// clock). Not the evaluator. One per render, one thread.
#pragma once

#include <array>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/tokenizer/jinja_limits.h"
#include "tenon/tokenizer/jinja_time.h"
#include "tenon/tokenizer/jinja_value.h"

namespace tenon::jinja {

// The sandbox of the reference renderer allows ranges of this many items.
inline constexpr int64_t kMaxRange = 100'000;
inline constexpr int kMaxValueDepth = 256;

class Runtime {
 public:
  Runtime(const RenderLimits& limits, ClockTime now)
      : limits_(limits), now_(now), stack_base_(StackPlace()) {}
  ~Runtime() {
    for (const auto& object : tracked_) object->Release();
  }
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  // Each of these may pass a limit: the value is then none and ok() false.
  Value String(std::string text, bool markup = false);
  // Text that keeps the markup mark of `like`.
  Value StringLike(const Value& like, std::string text) {
    return String(std::move(text), like.is_markup());
  }
  Value List(Values items) { return MakeSequence(SequenceType::kList, std::move(items)); }
  Value Tuple(Values items) { return MakeSequence(SequenceType::kTuple, std::move(items)); }
  Value MakeSequence(SequenceType type, Values items);
  // Keys are hashable. A repeated key keeps its first place and its last value.
  Value MakeDict(std::vector<Dict::Entry> entries);
  Value MakeIterator(Values items, std::string_view type_name = "generator");

  // An object that can come to refer to itself: it is released when the render ends.
  void Track(std::shared_ptr<Object> object) { tracked_.push_back(std::move(object)); }

  // Every object of a render passes here: it is charged, and its depth checked.
  Value Adopt(std::shared_ptr<Object> object);

  // Accounts `units` of work (at least 0); false once a limit is passed.
  bool Work(int64_t units) {
    steps_left_ -= units;
    return steps_left_ >= 0 || OutOfSteps();
  }
  bool ok() const { return failure_.ok(); }
  const Status& failure() const { return failure_; }
  // Ends the render; the first failure stays.
  void Fail(Status status) {
    if (ok()) failure_ = std::move(status);
    steps_left_ = -1;  // every later step fails too
  }
  // Before an operation that makes `bytes` out of less: an error when that is too much.
  Status Reserve(Int bytes);
  int64_t* live_bytes() { return &live_bytes_; }
  const RenderLimits& limits() const { return limits_; }
  const ClockTime& now() const { return now_; }

  // Whether a recursion has to end: counted in levels, and in bytes of the machine's stack.
  bool TooDeep() const {
    return nesting > limits_.max_depth || stack_base_ - StackPlace() > limits_.max_stack_bytes;
  }

  bool autoescape = false;
  int nesting = 0;  // see Nesting

 private:
  // An address in the current frame; stacks grow downwards here.
  static int64_t StackPlace() {
    return static_cast<int64_t>(reinterpret_cast<intptr_t>(__builtin_frame_address(0)));
  }
  bool OutOfSteps();
  void CheckMemory();
  void CheckExtent(const Extent& extent);
  // Extent of a container of `items`; notes a failure where it is too deep or too large.
  Extent ExtentOf(const Values& items, Extent so_far = {});

  RenderLimits limits_;
  ClockTime now_;
  int64_t stack_base_;
  int64_t live_bytes_ = 0;
  int64_t steps_left_ = limits_.max_steps;
  Status failure_;
  std::vector<std::shared_ptr<Object>> tracked_;
};

// Counts a level of recursion while it lives.
class Nesting {
 public:
  explicit Nesting(Runtime& runtime) : runtime_(runtime) { ++runtime_.nesting; }
  ~Nesting() { --runtime_.nesting; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;
  bool too_deep() const { return runtime_.TooDeep(); }
  Status Error() const;

 private:
  Runtime& runtime_;
};

// Arguments by parameter name. `values` holds one entry a parameter, null where not given; the
// pointers are into the Args. Errors name the function, the parameter and what was given.
struct Bound {
  static constexpr size_t kMax = 8;
  std::array<const Value*, kMax> values{};
  const Value* operator[](size_t i) const { return values[i]; }
  bool Has(size_t i) const { return values[i] != nullptr; }
  // Given and not none.
  bool HasValue(size_t i) const { return values[i] != nullptr && !values[i]->is_none(); }
};
Result<Bound> Bind(std::string_view function, const Args& args,
                   std::initializer_list<std::string_view> parameters, size_t num_required = 0);

// Typed readers of arguments; errors say which function wanted what.
Result<Int> IntegerArgument(std::string_view function, const Value& value);
Result<std::string_view> TextArgument(std::string_view function, const Value& value);

}  // namespace tenon::jinja
