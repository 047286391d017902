#include "tenon/modules/linear.h"

#include "tenon/modules/quantise.h"

namespace tenon {

Linear::Linear(const Scope& scope, int64_t in, int64_t out, bool has_bias)
    : Linear(scope.Parent(), scope.name(), in, {{std::string(scope.name()), out, has_bias}}) {}

Linear::Linear(const Scope& parent, std::string_view fused_name, int64_t in,
               std::vector<Segment> segments)
    : Module(parent / fused_name),
      in_(in),
      segments_(std::move(segments)),
      weights_(segments_.size()),
      biases_(segments_.size()),
      matrices_(segments_.size()) {
  for (size_t i = 0; i < segments_.size(); ++i) {
    weights_[i].path = (parent / segments_[i].name).path();
    weights_[i].rows = segments_[i].rows;
    weights_[i].cols = in_;
    matrices_[i] = MatrixOfSegment(i);
  }
}

MatrixRef Linear::MatrixOfSegment(size_t i) const {
  MatrixRef matrix = MatrixOf(weights_[i]);
  if (exact_) matrix.compute = Compute::kFp32;
  if (biases_[i] != nullptr && biases_[i]->loaded()) matrix.bias = biases_[i]->floats();
  return matrix;
}

void Linear::Quantise(Quantiser& quantiser) {
  for (WeightMatrix& weight : weights_) {
    weight.scheme = quantiser.SchemeOf(
        {.path = weight.path, .fused = path(), .experts = {}, .only_where_scaled = exact_});
  }
}

void Linear::CreateWeights(LoadContext& context) {
  if (!parameters_.empty()) return;  // once, however often the phase runs
  const auto form = exact_ || keeps_rows_ ? Parameter::Form::kAsStored : Parameter::Form::kProduct;
  for (size_t i = 0; i < segments_.size(); ++i) {
    weights_[i].form = form;
    CreateWeight(context, *this, weights_[i]);
    if (segments_[i].has_bias) {
      biases_[i] = &AddParameter(context, weights_[i].path + ".bias", {segments_[i].rows},
                                 Parameter::Form::kFloat32);
    }
    matrices_[i] = MatrixOfSegment(i);
  }
}

void Linear::LinkWeights() {
  for (size_t i = 0; i < segments_.size(); ++i) matrices_[i] = MatrixOfSegment(i);
}

Value Linear::SegmentOf(const Value& result, size_t i) const {
  int64_t begin = 0;
  for (size_t s = 0; s < i; ++s) begin += segments_[s].rows;
  return result.Slice(-1, begin, begin + segments_[i].rows);
}

}  // namespace tenon
