#include "tenon/kernels/reference/reference.h"

namespace tenon {
namespace {

KernelTable MakeTable() {
  KernelTable table;
  table.name = "reference";
  table.isa = Isa::kReference;
  reference::AddMatmuls(table);
  table.rms_norm = reference::RmsNorm;
  table.layer_norm = reference::LayerNorm;
  table.activate = reference::Activate;
  table.gated_activate = reference::GatedActivate;
  table.rope_angles = reference::RopeAngles;
  table.rope_half = reference::RopeHalf;
  table.rope_interleaved = reference::RopeInterleaved;
  table.route = reference::Route;
  table.selective_scan = reference::SelectiveScan;
  table.attention = ReferenceAttentionKernels();
  return table;
}

}  // namespace

const KernelTable& ReferenceKernels() {
  static const KernelTable table = MakeTable();
  return table;
}

}  // namespace tenon
