#include "tenon/tokenizer/jinja_objects.h"

#include <fmt/format.h>

#include "tenon/tokenizer/jinja_print.h"

namespace tenon::jinja {
namespace {

// loop.cycle and loop.changed.
class LoopMethod : public Object {
 public:
  LoopMethod(std::shared_ptr<LoopObject> loop, bool is_cycle)
      : loop_(std::move(loop)), is_cycle_(is_cycle) {}
  std::string_view TypeName() const override { return "method"; }
  bool callable() const override { return true; }
  Result<Value> Call(Runtime& runtime, const Args& args) override {
    return is_cycle_ ? loop_->Cycle(args) : loop_->Changed(runtime, args);
  }

 private:
  std::shared_ptr<LoopObject> loop_;
  bool is_cycle_;
};

Value NoItem(std::string_view which) {
  return Value::Undefined({{}, {}, fmt::format("there is no {} item", which)});
}

}  // namespace

Status MacroObject::AppendRepr(Runtime&, std::string& out) const {
  out += code_.name.empty() ? "<Macro anonymous>" : fmt::format("<Macro {}>", TextRepr(code_.name));
  return {};
}

Result<Value> MacroObject::Attribute(Runtime& runtime, std::string_view name) {
  if (name == "name") return code_.name.empty() ? Value() : runtime.String(code_.name);
  if (name == "arguments") {
    Values names;
    for (const auto& parameter : code_.parameters) names.push_back(parameter.second);
    return runtime.Tuple(std::move(names));
  }
  if (name == "catch_kwargs") return Value(code_.uses_kwargs);
  if (name == "catch_varargs") return Value(code_.uses_varargs);
  if (name == "caller") return Value(code_.uses_caller);
  if (name == "explicit_caller") return Value(code_.has_caller_parameter);
  return Value::Missing();
}

Status LoopObject::AppendRepr(Runtime&, std::string& out) const {
  out += fmt::format("<LoopContext {}/{}>", index0_ + 1,
                     length_ ? *length_ : cursor_.Length().value_or(index0_ + 1));
  return {};
}

Result<bool> LoopObject::Fetch(Runtime& runtime, Value& item) {
  if (next_pending_ < pending_.size()) {
    item = pending_[next_pending_++];
    return true;
  }
  while (cursor_.Next(runtime, item)) {
    if (loop_.condition == nullptr) return true;
    TN_ASSIGN_OR_RETURN(const bool takes, evaluator_.TakesItem(loop_, scope_, item));
    if (takes) return true;
  }
  if (!runtime.ok()) return runtime.failure();
  return false;
}

Result<bool> LoopObject::Peek(Runtime& runtime) {
  if (!after_.is_missing()) return true;
  Value item;
  TN_ASSIGN_OR_RETURN(const bool found, Fetch(runtime, item));
  if (found) after_ = std::move(item);
  return found;
}

Result<bool> LoopObject::Next(Runtime& runtime, Value& item) {
  if (!after_.is_missing()) {
    item = std::exchange(after_, Value::Missing());
  } else {
    TN_ASSIGN_OR_RETURN(const bool found, Fetch(runtime, item));
    if (!found) return false;
  }
  ++index0_;
  before_ = std::move(current_);
  current_ = item;
  return true;
}

void LoopObject::Finish() {
  finished_ = true;
  scope_.reset();
  cursor_ = Cursor();
  pending_.clear();
  next_pending_ = 0;
  after_ = current_ = before_ = Value::Missing();
  last_changed_.reset();
}

Result<int64_t> LoopObject::Length(Runtime& runtime) {
  if (length_) return *length_;
  if (loop_.condition == nullptr) length_ = cursor_.Length();
  if (length_) return *length_;
  Values rest;
  Value item;
  for (;;) {
    TN_ASSIGN_OR_RETURN(const bool found, Fetch(runtime, item));
    if (!found) break;
    rest.push_back(std::move(item));
  }
  length_ = static_cast<int64_t>(rest.size()) + index0_ + 1 + (after_.is_missing() ? 0 : 1);
  pending_ = std::move(rest);
  next_pending_ = 0;
  return *length_;
}

Result<Value> LoopObject::Attribute(Runtime& runtime, std::string_view name) {
  if (name == "index") return Value(index0_ + 1);
  if (name == "index0") return Value(index0_);
  if (name == "first") return Value(index0_ == 0);
  if (name == "depth") return Value(depth0_ + 1);
  if (name == "depth0") return Value(depth0_);
  if (name == "last") {
    TN_ASSIGN_OR_RETURN(const bool more, Peek(runtime));
    return Value(!more);
  }
  if (name == "length" || name == "revindex" || name == "revindex0") {
    TN_ASSIGN_OR_RETURN(const int64_t length, Length(runtime));
    if (name == "length") return Value(length);
    return Value(name == "revindex" ? length - index0_ : length - index0_ - 1);
  }
  if (name == "previtem") return before_.is_missing() ? NoItem("previous") : before_;
  if (name == "nextitem") {
    TN_ASSIGN_OR_RETURN(const bool more, Peek(runtime));
    return more ? after_ : NoItem("next");
  }
  if (name == "cycle" || name == "changed") {
    return runtime.Adopt(std::make_shared<LoopMethod>(shared_from_this(), name == "cycle"));
  }
  return Value::Missing();
}

Result<Value> LoopObject::Cycle(const Args& args) const {
  if (args.positional.empty()) return Refused("loop.cycle() wants at least one value");
  const auto count = static_cast<int64_t>(args.positional.size());
  return args.positional[static_cast<size_t>(index0_ % count)];
}

Result<Value> LoopObject::Changed(Runtime& runtime, const Args& args) {
  bool same = last_changed_ && last_changed_->size() == args.positional.size();
  for (size_t i = 0; same && i < args.positional.size(); ++i) {
    TN_ASSIGN_OR_RETURN(same, Equal(runtime, (*last_changed_)[i], args.positional[i]));
  }
  if (!same) last_changed_ = args.positional;
  return Value(!same);
}

Result<Value> LoopObject::Call(Runtime&, const Args& args) {
  TN_ASSIGN_OR_RETURN(const Bound bound, Bind("loop", args, {"iterable"}, 1));
  if (!loop_.recursive) {
    return Refused("loop() needs a loop marked 'recursive': {% for ... recursive %}");
  }
  if (finished_) return Refused("loop() is called after its loop has ended");
  return evaluator_.RenderLoop(loop_, scope_, *bound[0], depth0_ + 1);
}

Result<Value> BlockObject::Call(Runtime&, const Args& args) {
  TN_RETURN_IF_ERROR(Bind("block", args, {}).status());
  return evaluator_.RenderBlock(block_);
}

Result<Value> SelfObject::Attribute(Runtime& runtime, std::string_view name) {
  for (const BlockStmt* block : evaluator_.program().blocks) {
    if (block->name == name) {
      return runtime.Adopt(std::make_shared<BlockObject>(evaluator_, *block));
    }
  }
  return Value::Missing();
}

}  // namespace tenon::jinja
