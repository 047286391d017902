// Which layers of FLASHINFER run a kernel compiled for them: asked while layers are created, made
// while a model is loaded, called in a step. What a variant is, and how it is compiled, is
// elsewhere. Private to the backend. Thread-safe until loaded, constant after.
#pragma once

#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tenon/attention/backends/builtin.h"
#include "tenon/attention/backends/flashinfer_compiler.h"
#include "tenon/attention/backends/flashinfer_variant.h"
#include "tenon/kernels/attention_kernels.h"

namespace tenon::backends {

// A compiled kernel in the place of AttentionKernels::online.
class CompiledKernel {
 public:
  explicit CompiledKernel(KernelCompiler::Unit unit) : unit_(std::move(unit)) {}
  const KernelCompiler::Unit& unit() const { return unit_; }
  Status Load(const KernelCompiler& compiler);
  void Attend(const AttendArgs& args, const AttendState& sums, float* scratch) const;
  // Beside OnlineScratchFloats: a query.
  static int64_t MoreScratchFloats(int64_t k_width) { return k_width; }

 private:
  KernelCompiler::Unit unit_;
  TnVariantFunction* function_ = nullptr;
};

class KernelVariants {
 public:
  KernelVariants(Isa isa, AttentionJit jit, VariantHooks hooks);

  // The layer's kernel, at a stable address; null: the generic one.
  const CompiledKernel* For(const AttentionSpec& spec);
  // What layers were given, a line per kind of layer; an error where something else was required.
  Result<std::vector<std::string>> Plan() const;
  // Compiles what the cache does not hold, several at a time, and loads it. Once; more later.
  Status Load();

 private:
  const CompiledKernel* Generic(const std::string& why);

  const Isa isa_;
  const AttentionJit jit_;
  const VariantHooks hooks_;
  const bool required_;
  mutable std::mutex mutex_;
  std::optional<KernelCompiler> compiler_;  // looked for when the first layer asks
  std::deque<CompiledKernel> kernels_;
  size_t loaded_ = 0;
  std::vector<std::string> notes_;
  Status refused_;
};

}  // namespace tenon::backends
