// The plain kernels: loops that say what every faster table must compute. Not fast on purpose.
// Thread-safe.
#pragma once

#include "tenon/kernels/table.h"

namespace tenon::reference {

void AddMatmuls(KernelTable& table);

void RmsNorm(const NormKernelArgs& args, const float* x, float* y);
void LayerNorm(const NormKernelArgs& args, const float* x, float* y);
void Activate(ActivationCode code, const float* x, float* y, int64_t n);
void GatedActivate(ActivationCode code, const float* gate, const float* up, float* y, int64_t n);
void RopeAngles(int32_t position, const float* inv_freq, float factor, int64_t half,
                float* cos_sin);
void RopeHalf(float* x, const float* cos_sin, int64_t half);
void RopeInterleaved(float* x, const float* cos_sin, int64_t half);
void Route(const RouteKernelArgs& args, const float* logits, int32_t* chosen, float* weights,
           float* scratch);
void SelectiveScan(const ScanKernelArgs& args, int64_t rows);

}  // namespace tenon::reference
