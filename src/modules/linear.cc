#include "tenon/modules/linear.h"

namespace tenon {

Linear::Linear(const Scope& scope, int64_t in, int64_t out, bool has_bias)
    : Linear(scope.Parent(), scope.name(), in, {{std::string(scope.name()), out, has_bias}}) {}

Linear::Linear(const Scope& parent, std::string_view fused_name, int64_t in,
               std::vector<Segment> segments)
    : Module(parent / fused_name),
      in_(in),
      segments_(std::move(segments)),
      prefix_(parent.path().empty() ? "" : parent.path() + "."),
      matrices_(segments_.size()) {
  for (size_t i = 0; i < segments_.size(); ++i) {
    matrices_[i].rows = segments_[i].rows;
    matrices_[i].cols = in_;
  }
}

std::string Linear::PathOf(const Segment& segment) const { return prefix_ + segment.name; }

MatrixRef Linear::Exactly(MatrixRef matrix) const {
  if (exact_) matrix.compute = Compute::kFp32;
  return matrix;
}

void Linear::CreateWeights(LoadContext& context) {
  const auto form = exact_ || keeps_rows_ ? Parameter::Form::kAsStored : Parameter::Form::kProduct;
  for (size_t i = 0; i < segments_.size(); ++i) {
    const Segment& segment = segments_[i];
    const Parameter& weight =
        AddParameter(context, PathOf(segment) + ".weight", {segment.rows, in_}, form);
    matrices_[i] = Exactly(MetaMatrixOf(weight));
    if (segment.has_bias) {
      AddParameter(context, PathOf(segment) + ".bias", {segment.rows}, Parameter::Form::kFloat32);
    }
  }
}

void Linear::LinkWeights() {
  size_t next = 0;
  for (size_t i = 0; i < segments_.size(); ++i) {
    matrices_[i] = Exactly(MatrixOf(parameters_[next++]));
    if (segments_[i].has_bias) matrices_[i].bias = parameters_[next++].floats();
  }
}

Value Linear::SegmentOf(const Value& result, size_t i) const {
  int64_t begin = 0;
  for (size_t s = 0; s < i; ++s) begin += segments_[s].rows;
  return result.Slice(-1, begin, begin + segments_[i].rows);
}

}  // namespace tenon
