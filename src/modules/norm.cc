#include "tenon/modules/norm.h"

namespace tenon {

NormModule::NormModule(const Scope& scope, const NormOptions& options)
    : Module(scope), options_(options) {
  weights_.kind = options.kind;
  weights_.eps = options.eps;
  weights_.weight_offset = options.weight_offset;
}

void NormModule::CreateWeights(LoadContext& context) {
  AddParameter(context, path() + ".weight", {options_.width}, Parameter::Form::kFloat32);
  if (options_.has_bias) {
    AddParameter(context, path() + ".bias", {options_.width}, Parameter::Form::kFloat32);
  }
}

void NormModule::LinkWeights() {
  weights_.weight = parameters_[0].floats();
  if (options_.has_bias) weights_.bias = parameters_[1].floats();
}

}  // namespace tenon
