// The objects that run template code: macros, the `loop` variable, blocks and `self`. They belong
// to one render and refer to its Evaluator.
#pragma once

#include <optional>

#include "tenon/tokenizer/jinja_eval.h"

namespace tenon::jinja {

class MacroObject : public Object {
 public:
  MacroObject(Evaluator& evaluator, const MacroCode& code, ScopePtr scope)
      : evaluator_(evaluator), code_(code), scope_(std::move(scope)) {}
  std::string_view TypeName() const override { return "Macro"; }
  Status AppendRepr(Runtime& runtime, std::string& out) const override;
  Result<Value> Attribute(Runtime& runtime, std::string_view name) override;
  bool callable() const override { return true; }
  Result<Value> Call(Runtime&, const Args& args) override {
    return evaluator_.InvokeMacro(code_, scope_, args);
  }

 private:
  Evaluator& evaluator_;
  const MacroCode& code_;
  ScopePtr scope_;
};

// A running loop: fetches its items lazily, since the loop's condition may read what the body has
// changed in a namespace.
class LoopObject : public Object, public std::enable_shared_from_this<LoopObject> {
 public:
  LoopObject(Evaluator& evaluator, const ForStmt& loop, ScopePtr scope, Cursor cursor, int depth0)
      : evaluator_(evaluator),
        loop_(loop),
        scope_(std::move(scope)),
        cursor_(std::move(cursor)),
        depth0_(depth0) {}
  std::string_view TypeName() const override { return "LoopContext"; }
  Status AppendRepr(Runtime& runtime, std::string& out) const override;
  Result<Value> Attribute(Runtime& runtime, std::string_view name) override;
  bool callable() const override { return true; }
  Result<Value> Call(Runtime& runtime, const Args& args) override;
  Result<int64_t> Length(Runtime& runtime) override;

  // Moves to the next item; false at the end.
  Result<bool> Next(Runtime& runtime, Value& item);
  // Drops the items: the loop has ended, though a namespace may still hold it.
  void Finish();
  Result<Value> Cycle(const Args& args) const;
  Result<Value> Changed(Runtime& runtime, const Args& args);

 private:
  Result<bool> Fetch(Runtime& runtime, Value& item);
  // Loads after_; false when there is no next item.
  Result<bool> Peek(Runtime& runtime);

  Evaluator& evaluator_;
  const ForStmt& loop_;
  ScopePtr scope_;
  Cursor cursor_;
  int depth0_;
  bool finished_ = false;
  int64_t index0_ = -1;
  std::optional<int64_t> length_;
  Values pending_;  // fetched ahead to know the length
  size_t next_pending_ = 0;
  Value after_ = Value::Missing();
  Value current_ = Value::Missing();
  Value before_ = Value::Missing();
  std::optional<Values> last_changed_;
};

class BlockObject : public Object {
 public:
  BlockObject(Evaluator& evaluator, const BlockStmt& block)
      : evaluator_(evaluator), block_(block) {}
  std::string_view TypeName() const override { return "BlockReference"; }
  bool callable() const override { return true; }
  Result<Value> Call(Runtime& runtime, const Args& args) override;

 private:
  Evaluator& evaluator_;
  const BlockStmt& block_;
};

// `self`: the template's blocks by name.
class SelfObject : public Object {
 public:
  explicit SelfObject(Evaluator& evaluator) : evaluator_(evaluator) {}
  std::string_view TypeName() const override { return "TemplateReference"; }
  Result<Value> Attribute(Runtime& runtime, std::string_view name) override;

 private:
  Evaluator& evaluator_;
};

}  // namespace tenon::jinja
