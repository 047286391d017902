#include "tenon/modules/recurrent.h"

namespace tenon {

StateCache::StateCache(const Scope& scope, int layer, int64_t bytes) {
  CacheSpec spec;
  spec.kind = CacheKind::kState;
  spec.layer = layer;
  spec.state_bytes = bytes;
  if (scope.context().options.mapping.tp > 1) {
    scope.Error("layers with a state are not shared out over ranks; fix: --tp 1");
  }
  scope.context().caches.push_back({spec, &cache_});
}

const SequenceRuns& StateCache::RunsOf(Forward& pass) const {
  return pass.layout().state_runs[static_cast<size_t>(cache_.group)];
}

CausalConvModule::CausalConvModule(const Scope& scope, const CausalConvOptions& o)
    : Module(scope),
      spec_{.channels = o.channels, .width = o.width, .activation = o.activation},
      has_bias_(o.has_bias),
      state_(scope, o.layer, StateBytesOf(spec_)) {}

void CausalConvModule::CreateWeights(LoadContext& context) {
  AddParameter(context, path() + ".weight", {spec_.channels, spec_.width},
               Parameter::Form::kFloat32);
  if (has_bias_)
    AddParameter(context, path() + ".bias", {spec_.channels}, Parameter::Form::kFloat32);
}

void CausalConvModule::LinkWeights() {
  spec_.weight = parameters_[0].floats();
  if (has_bias_) spec_.bias = parameters_[1].floats();
}

Value CausalConvModule::operator()(Forward& pass, const Value& x) const {
  return CausalConv(pass.tape(), spec_, x, state_.RunsOf(pass), state_.states());
}

Mamba2Mixer::Mamba2Mixer(const Scope& scope, const Mamba2Options& o)
    : Module(scope),
      options_(o),
      inner_(o.heads * o.head_dim),
      in_proj_(scope / "in_proj", o.hidden, 2 * inner_ + 2 * o.groups * o.state_size + o.heads,
               o.proj_bias),
      conv_(scope / "conv1d", {.layer = o.layer,
                               .channels = inner_ + 2 * o.groups * o.state_size,
                               .width = o.conv_width,
                               .has_bias = o.conv_bias,
                               .activation = o.activation}),
      scan_{.heads = o.heads,
            .head_dim = o.head_dim,
            .groups = o.groups,
            .state_size = o.state_size,
            .dt_min = o.dt_min,
            .dt_max = o.dt_max},
      state_(scope, o.layer, StateBytesOf(scan_)),
      norm_(scope / "norm", {.width = inner_, .eps = o.norm_eps}),
      out_proj_(scope / "out_proj", inner_, o.hidden, o.proj_bias) {}

void Mamba2Mixer::CreateWeights(LoadContext& context) {
  for (const char* name : {".A_log", ".D", ".dt_bias"}) {
    AddParameter(context, path() + name, {options_.heads}, Parameter::Form::kFloat32);
  }
}

void Mamba2Mixer::LinkWeights() {
  scan_.a_log = parameters_[0].floats();
  scan_.d = parameters_[1].floats();
  scan_.dt_bias = parameters_[2].floats();
}

Value Mamba2Mixer::operator()(Forward& pass, const Value& x) const {
  const int64_t bc = options_.groups * options_.state_size;
  const int64_t conv_width = inner_ + 2 * bc;
  const Value projected = in_proj_(pass, x);  // [num_tokens, gate | x, b, c | dt]
  const Value gate = projected.Slice(1, 0, inner_);
  const Value xbc = conv_(pass, projected.Slice(1, inner_, inner_ + conv_width));
  const SelectiveScanInput input{
      xbc.Slice(1, 0, inner_), xbc.Slice(1, inner_, inner_ + bc),
      xbc.Slice(1, inner_ + bc, conv_width),
      projected.Slice(1, inner_ + conv_width, inner_ + conv_width + options_.heads)};
  const Value y = SelectiveScan(pass.tape(), scan_, input, state_.RunsOf(pass), state_.states());
  return out_proj_(pass, GatedNorm(pass.tape(), norm_.weights(), y, gate, options_.norm_group));
}

ShortConv::ShortConv(const Scope& scope, const ShortConvOptions& o)
    : hidden_(o.hidden),
      in_proj_(scope / "in_proj", o.hidden, 3 * o.hidden, o.has_bias),
      conv_(scope / "conv",
            {.layer = o.layer, .channels = o.hidden, .width = o.width, .has_bias = o.has_bias}),
      out_proj_(scope / "out_proj", o.hidden, o.hidden, o.has_bias) {}

Value ShortConv::operator()(Forward& pass, const Value& x) const {
  const Value bcx = in_proj_(pass, x);
  const Value b = bcx.Slice(1, 0, hidden_);
  const Value c = bcx.Slice(1, hidden_, 2 * hidden_);
  const Value input = Multiply(pass.tape(), b, bcx.Slice(1, 2 * hidden_, 3 * hidden_));
  return out_proj_(pass, Multiply(pass.tape(), c, conv_(pass, input)));
}

}  // namespace tenon
