#include "tenon/kernels/reference/reference.h"

namespace tenon {
namespace {

// Tables start as its copy: KernelTable's own constructor would be a weak symbol, which a source
// compiled for one instruction set must not define (tests/contracts: weak-symbols).
constexpr KernelTable kEmpty;

KernelTable MakeTable() {
  KernelTable table = kEmpty;
  table.name = "reference";
  table.isa = Isa::kReference;
  reference::AddMatmuls(table.matmul);
  reference::AddProbes(table.probes);
  table.norm.rms = {reference::RmsNorm, "reference/rms_norm"};
  table.norm.layer = {reference::LayerNorm, "reference/layer_norm"};
  table.norm.gated_rms = {reference::GatedRmsNorm, "reference/gated_rms_norm"};
  table.elementwise.activate = {reference::Activate, "reference/activate"};
  table.elementwise.gated_activate = {reference::GatedActivate, "reference/gated_activate"};
  table.elementwise.clamped_swiglu = {reference::ClampedSwigluUnit, "reference/clamped_swiglu"};
  table.elementwise.multiply = {reference::Multiply, "reference/multiply"};
  table.elementwise.add = {reference::Add, "reference/add"};
  table.elementwise.add_scaled = {reference::AddScaled, "reference/add_scaled"};
  table.elementwise.scale = {reference::Scale, "reference/scale"};
  table.elementwise.soft_cap = {reference::SoftCap, "reference/soft_cap"};
  table.elementwise.softmax = {reference::Softmax, "reference/softmax"};
  table.rope.angles = {reference::RopeAngles, "reference/rope_angles"};
  table.rope.rotate_half = {reference::RotateHalf, "reference/rope_half"};
  table.rope.rotate_interleaved = {reference::RotateInterleaved, "reference/rope_interleaved"};
  table.rows.embed = {reference::Embed, "reference/embed"};
  table.rows.gather = {reference::Gather, "reference/gather_rows"};
  table.moe.route = {reference::Route, "reference/moe_route"};
  table.recurrent.conv = {reference::CausalConv, "reference/causal_conv"};
  table.recurrent.scan = {reference::SelectiveScan, "reference/selective_scan"};
  table.recurrent.delta = {reference::GatedDelta, "reference/gated_delta"};
  table.attention = ReferenceAttentionKernels();
  return table;
}

}  // namespace

const KernelTable& ReferenceKernels() {
  static const KernelTable table = MakeTable();
  return table;
}

}  // namespace tenon
