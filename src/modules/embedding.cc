#include "tenon/modules/embedding.h"

#include <algorithm>
#include <utility>

#include "tenon/modules/quantise.h"

namespace tenon {

Embedding::Embedding(const Scope& scope, int64_t rows, int64_t width) : Module(scope) {
  share_ = DivideRoughly(scope.context().options.mapping, rows);
  table_.rows = share_.size;
  table_.cols = width;
}

void Embedding::CreateWeights(LoadContext& context) {
  if (!parameters_.empty()) return;
  table_ = MetaRowsOf(AddParameter(context, path() + ".weight",
                                   PartShape(table_.rows, table_.cols, share_, {}),
                                   Parameter::Form::kAsStored));
}

MatrixRef Embedding::UseInProducts(const LoadContext& context) {
  parameters_[0].PackForProducts(context);
  return MetaMatrixOf(parameters_[0]);
}

void Embedding::LinkWeights() { table_ = RowsOf(parameters_[0]); }

LmHead::LmHead(const Scope& scope, Embedding& embedding, bool tied, bool has_bias)
    : Module(scope), embedding_(embedding), tied_(tied), has_bias_(has_bias) {
  weight_.path = path();
  weight_.rows = embedding.table().rows;
  weight_.row_share = embedding.share();
  weight_.cols = embedding.table().cols;
  matrix_ = MatrixOf(weight_);
  // The last stage has no embedding of its own, but where it is the head too.
  LoadContext& context = scope.context();
  auto& modules = context.modules;
  const bool borrows = context.OnThisStage() && tied && !IsPresent(context);
  if (borrows && std::find(modules.begin(), modules.end(), &embedding) == modules.end()) {
    modules.insert(modules.end() - 1, &embedding);  // before this one, which asks for its weights
  }
}

bool LmHead::IsPresent(const LoadContext& context) const {
  // The configuration alone: a base model's files hold no head.
  if (context.index == nullptr) return !tied_ && !context.options.headless;
  return context.index->Find(path() + ".weight") != nullptr;
}

void LmHead::Quantise(Quantiser& quantiser) {
  if (IsPresent(quantiser.context())) {
    weight_.scheme =
        quantiser.SchemeOf({.path = path(), .fused = {}, .experts = {}, .only_where_scaled = true});
  }
}

void LmHead::CreateWeights(LoadContext& context) {
  if (std::exchange(created_, true)) return;
  const std::string name = path() + ".weight";
  if (IsPresent(context)) {
    CreateWeight(context, *this, weight_);
    matrix_ = MatrixOf(weight_);
    if (tied_) {
      context.Record({.field = "lm_head",
                      .requested = "tied",
                      .resolved = "own",
                      .by = "weights",
                      .why = name + " is in the checkpoint, so it is used as it is"});
    }
  } else if (tied_) {
    shared_ = true;
    matrix_ = embedding_.UseInProducts(context);
  } else if (context.options.headless) {
    absent_ = true;
    context.has_logits = false;
    context.Record({.field = "lm_head",
                    .requested = "",
                    .resolved = "none",
                    .by = "weights",
                    .why = "a base model: its result is the final hidden states, no logits"});
    return;
  } else {
    context.Error(name +
                  ": absent, and the config says tie_word_embeddings = false; fix: a complete "
                  "checkpoint, or tie_word_embeddings = true in config.json");
  }
  if (has_bias_) {
    bias_ = &AddParameter(context, path() + ".bias", {matrix_.rows}, Parameter::Form::kFloat32);
  }
}

void LmHead::LinkWeights() {
  if (absent_) return;
  matrix_ = shared_ ? embedding_.product() : MatrixOf(weight_);
  if (has_bias_) matrix_.bias = bias_->floats();
}

Value LogitRows(Forward& pass, const Value& x) {
  const StepLayout& layout = pass.layout();
  if (x.dim(0) == layout.num_logit_rows) return x;
  return GatherRows(pass.tape(), x, layout.logit_rows, layout.num_logit_rows);
}

}  // namespace tenon
