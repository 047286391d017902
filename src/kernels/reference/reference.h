// The plain kernels: loops that say what every faster table must compute. Not fast on purpose.
// Contracts are with the types of kernels/table.h. Thread-safe.
#pragma once

#include "tenon/kernels/table.h"

namespace tenon::reference {

void AddMatmuls(MatmulKernels& matmul);
void AddProbes(ProbeKernels& probes);

void RmsNorm(const NormKernelArgs& args, const float* x, float* y);
void LayerNorm(const NormKernelArgs& args, const float* x, float* y);
void GatedRmsNorm(const NormKernelArgs& args, int64_t group, const float* x, const float* gate,
                  float* y);

void Activate(Activation activation, const float* x, float* y, int64_t n);
void GatedActivate(Activation activation, const float* gate, const float* up, float* y, int64_t n);
void ClampedSwigluUnit(const ClampedSwiglu& unit, const float* gate, const float* up, float* y,
                       int64_t n);
void Multiply(const float* a, const float* b, float* y, int64_t n);
void Add(const float* x, const float* const* addends, int32_t count, float* y, int64_t n);
void AddScaled(float factor, const float* x, float* y, int64_t n);
void Scale(float factor, const float* x, float* y, int64_t n);
void SoftCap(float cap, const float* x, float* y, int64_t n);
void Softmax(const float* x, float* y, int64_t n);

void RopeAngles(int32_t position, const float* inv_freq, float factor, int64_t half,
                float* cos_sin);
void RotateHalf(const float* cos_sin, int64_t half, const float* x, float* y, int64_t width);
void RotateInterleaved(const float* cos_sin, int64_t half, const float* x, float* y, int64_t width);

void Embed(const EmbedKernelArgs& args, int64_t begin, int64_t end);
void Gather(const GatherKernelArgs& args, int64_t begin, int64_t end);

void Route(const RouteKernelArgs& args, const float* logits, int32_t* chosen, float* weights,
           float* scratch);

void CausalConv(const ConvKernelArgs& args, int64_t begin, int64_t end);
void SelectiveScan(const ScanKernelArgs& args);
void GatedDelta(const DeltaKernelArgs& args, float* scratch);

}  // namespace tenon::reference
