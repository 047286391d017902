#include "tenon/modules/moe.h"

#include <fmt/format.h>

#include "tenon/modules/quantise.h"

namespace tenon {

Moe::Moe(const Scope& scope, const MoeOptions& options)
    : Module(scope),
      options_(options),
      routing_(options.routing),
      router_(scope / options.router, options.hidden, options.routing.experts, options.router_bias),
      experts_(static_cast<size_t>(3 * options.routing.experts)),
      biases_(experts_.size()),
      gate_(static_cast<size_t>(options.routing.experts)),
      up_(gate_.size()),
      down_(gate_.size()) {
  router_.KeepExact();
  weights_ = {gate_, up_, down_, options.activation, options.weighs};
  Share share = {0, options.intermediate, 0};  // of each expert's intermediate width
  if (!DivideEvenly(scope.context().options.mapping, options.intermediate, 0, share)) {
    scope.Error(fmt::format(
        "experts of width {} cannot be shared out over tp = {} ranks; fix: "
        "--tp {}",
        options.intermediate, scope.context().options.mapping.tp, WorldsFor(options.intermediate)));
  }
  for (size_t i = 0; i < experts_.size(); ++i) {
    const std::string* const names[] = {&options_.gate, &options_.up, &options_.down};
    const bool is_down = i % 3 == 2;
    WeightMatrix& weight = experts_[i];
    weight.path = fmt::format("{}.experts.{}.{}", path(), i / 3, *names[i % 3]);
    weight.rows = is_down ? options_.hidden : share.size;
    weight.cols = is_down ? share.size : options_.hidden;
    (is_down ? weight.col_share : weight.row_share) = share;
    weight.form = Parameter::Form::kAsStored;
  }
}

void Moe::Quantise(Quantiser& quantiser) {
  const std::string experts = path() + ".experts";
  for (WeightMatrix& weight : experts_) {
    weight.scheme = quantiser.SchemeOf({.path = weight.path, .fused = {}, .experts = experts});
  }
}

void Moe::CreateWeights(LoadContext& context) {
  if (!parameters_.empty()) return;  // once, however often the phase runs
  if (options_.has_choice_bias) {
    choice_bias_ = &AddParameter(context, path() + "." + options_.choice_bias, {routing_.experts},
                                 Parameter::Form::kFloat32);
  }
  const bool is_first_rank = context.options.mapping.tp_rank() == 0;
  for (size_t i = 0; i < experts_.size(); ++i) {
    WeightMatrix& weight = experts_[i];
    CreateWeight(context, *this, weight);
    // What the ranks give is summed up, so one of them adds the bias of down.
    if (!options_.expert_bias || (i % 3 == 2 && !is_first_rank)) continue;
    biases_[i] =
        &AddParameter(context, weight.path + ".bias", VectorPart(weight.rows, weight.row_share),
                      Parameter::Form::kFloat32);
  }
  LinkExperts();
}

void Moe::LinkExperts() {
  const auto link = [this](size_t i, MatrixRef& matrix) {
    matrix = MatrixOf(experts_[i]);
    if (biases_[i] != nullptr && biases_[i]->loaded()) matrix.bias = biases_[i]->floats();
  };
  for (size_t e = 0; e < gate_.size(); ++e) {
    link(3 * e, gate_[e]);
    link(3 * e + 1, up_[e]);
    link(3 * e + 2, down_[e]);
  }
}

Status Moe::DecodeWeights() {
  for (WeightMatrix& weight : experts_) TN_RETURN_IF_ERROR(DecodeWeight(weight), weight.path);
  return {};
}

int64_t Moe::derived_bytes() const {
  int64_t bytes = 0;
  for (const WeightMatrix& weight : experts_) bytes += DecodedBytes(weight);
  return bytes;
}

void Moe::LinkWeights() {
  if (choice_bias_ != nullptr) routing_.choice_bias = choice_bias_->floats();
  LinkExperts();
}

Value Moe::operator()(Forward& pass, const Value& x) const {
  const Routing routing = Route(pass.tape(), routing_, router_(pass, x));
  return ApplyExperts(pass.tape(), weights_, routing, x);
}

}  // namespace tenon
