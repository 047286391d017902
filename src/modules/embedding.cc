#include "tenon/modules/embedding.h"

namespace tenon {

Embedding::Embedding(const Scope& scope, int64_t rows, int64_t width) : Module(scope) {
  table_.rows = rows;
  table_.cols = width;
}

void Embedding::CreateWeights(LoadContext& context) {
  table_ = MetaRowsOf(AddParameter(context, path() + ".weight", {table_.rows, table_.cols},
                                   Parameter::Form::kAsStored));
}

MatrixRef Embedding::UseInProducts(const LoadContext& context) {
  parameters_[0].PackForProducts(context);
  return MetaMatrixOf(parameters_[0]);
}

void Embedding::LinkWeights() { table_ = RowsOf(parameters_[0]); }

LmHead::LmHead(const Scope& scope, Embedding& embedding, bool tied, bool has_bias)
    : Module(scope), embedding_(embedding), tied_(tied), has_bias_(has_bias) {
  matrix_.rows = embedding.table().rows;
  matrix_.cols = embedding.table().cols;
}

void LmHead::CreateWeights(LoadContext& context) {
  const std::string name = path() + ".weight";
  const bool present = context.index == nullptr ? !tied_ : context.index->Find(name) != nullptr;
  if (present) {
    matrix_ = MetaMatrixOf(
        AddParameter(context, name, {matrix_.rows, matrix_.cols}, Parameter::Form::kProduct));
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
  if (has_bias_) AddParameter(context, path() + ".bias", {matrix_.rows}, Parameter::Form::kFloat32);
}

void LmHead::LinkWeights() {
  if (absent_) return;
  matrix_ = shared_ ? embedding_.product() : MatrixOf(parameters_[0]);
  if (has_bias_) matrix_.bias = parameters_[shared_ ? 0 : 1].floats();
}

Value LogitRows(Forward& pass, const Value& x) {
  const StepLayout& layout = pass.layout();
  if (x.dim(0) == layout.num_logit_rows) return x;
  return GatherRows(pass.tape(), x, layout.logit_rows, layout.num_logit_rows);
}

}  // namespace tenon
