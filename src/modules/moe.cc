#include "tenon/modules/moe.h"

#include <fmt/format.h>

namespace tenon {

Moe::Moe(const Scope& scope, const MoeOptions& options)
    : Module(scope),
      options_(options),
      routing_(options.routing),
      router_(scope / options.router, options.hidden, options.routing.experts),
      gate_(static_cast<size_t>(options.routing.experts)),
      up_(gate_.size()),
      down_(gate_.size()) {
  router_.KeepExact();
  weights_ = {gate_, up_, down_, options.activation};
}

void Moe::CreateWeights(LoadContext& context) {
  if (options_.has_choice_bias) {
    AddParameter(context, path() + "." + options_.choice_bias, {routing_.experts},
                 Parameter::Form::kFloat32);
  }
  for (size_t e = 0; e < gate_.size(); ++e) {
    const std::string prefix = fmt::format("{}.experts.{}.", path(), e);
    const auto add = [&](const std::string& name, int64_t rows, int64_t cols) {
      return MetaMatrixOf(AddParameter(context, prefix + name + ".weight", {rows, cols},
                                       Parameter::Form::kAsStored));
    };
    gate_[e] = add(options_.gate, options_.intermediate, options_.hidden);
    up_[e] = add(options_.up, options_.intermediate, options_.hidden);
    down_[e] = add(options_.down, options_.hidden, options_.intermediate);
  }
}

void Moe::LinkWeights() {
  size_t next = 0;
  if (options_.has_choice_bias) routing_.choice_bias = parameters_[next++].floats();
  for (size_t e = 0; e < gate_.size(); ++e) {
    gate_[e] = MatrixOf(parameters_[next++]);
    up_[e] = MatrixOf(parameters_[next++]);
    down_[e] = MatrixOf(parameters_[next++]);
  }
}

Value Moe::operator()(Forward& pass, const Value& x) const {
  const Routing routing = Route(pass.tape(), routing_, router_(pass, x));
  return ApplyExperts(pass.tape(), weights_, routing, x);
}

}  // namespace tenon
