#include "tenon/modules/linear.h"

#include <fmt/format.h>

#include "tenon/modules/quantise.h"

namespace tenon {

Linear::Linear(const Scope& scope, int64_t in, int64_t out, bool has_bias,
               const LinearDivision& division)
    : Linear(scope.Parent(), scope.name(), in, {{std::string(scope.name()), out, has_bias}},
             division) {}

Linear::Linear(const Scope& parent, std::string_view fused_name, int64_t in,
               std::vector<Segment> segments, const LinearDivision& division)
    : Module(parent / fused_name),
      in_(in),
      segments_(std::move(segments)),
      weights_(segments_.size()),
      biases_(segments_.size()),
      matrices_(segments_.size()) {
  Divide(parent, division);
  for (size_t i = 0; i < segments_.size(); ++i) {
    weights_[i].path = (parent / segments_[i].name).path();
    weights_[i].rows = segments_[i].rows;
    weights_[i].cols = in_;
    matrices_[i] = MatrixOfSegment(i);
  }
}

void Linear::Divide(const Scope& parent, const LinearDivision& division) {
  const LinearShare share = division.share;
  const ParallelMapping& mapping =
      division.among != nullptr ? *division.among : parent.context().options.mapping;
  if (mapping.tp == 1 || share == LinearShare::kWhole) return;
  if (share == LinearShare::kColumns) {
    Share columns;
    if (!DivideEvenly(mapping, in_, 0, columns)) {
      (parent / segments_[0].name)
          .Error(fmt::format("{} columns cannot be shared out over tp = {} ranks; fix: --tp {}",
                             in_, mapping.tp, WorldsFor(in_)));
    }
    in_ = columns.size;
    for (size_t i = 0; i < segments_.size(); ++i) {
      weights_[i].col_share = columns;
      if (mapping.tp_rank() > 0) segments_[i].has_bias = false;
    }
    return;
  }
  for (size_t i = 0; i < segments_.size(); ++i) {
    Segment& segment = segments_[i];
    const int64_t units = segment.units > 0 ? segment.units : segment.rows;
    if (!DivideEvenly(mapping, segment.rows, units, weights_[i].row_share)) {
      (parent / segment.name)
          .Error(fmt::format("{} {} cannot be shared out over tp = {} ranks; fix: --tp {}", units,
                             segment.units > 0 ? "heads" : "rows", mapping.tp, WorldsFor(units)));
      continue;
    }
    segment.rows = weights_[i].row_share.size;
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
      biases_[i] = &AddParameter(context, weights_[i].path + ".bias",
                                 VectorPart(segments_[i].rows, weights_[i].row_share),
                                 Parameter::Form::kFloat32);
    }
    matrices_[i] = MatrixOfSegment(i);
  }
}

Status Linear::DecodeWeights() {
  for (WeightMatrix& weight : weights_) TN_RETURN_IF_ERROR(DecodeWeight(weight), weight.path);
  return {};
}

int64_t Linear::derived_bytes() const {
  int64_t bytes = 0;
  for (const WeightMatrix& weight : weights_) bytes += DecodedBytes(weight);
  return bytes;
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
