#include "tenon/attention/backends/flashinfer_variants.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "tenon/kernels/attention_rules.h"

namespace tenon::backends {

Status CompiledKernel::Load(const KernelCompiler& compiler) {
  TN_ASSIGN_OR_RETURN(void* function, compiler.Load(unit_));
  function_ = reinterpret_cast<TnVariantFunction*>(function);
  return {};
}

void CompiledKernel::Attend(const AttendArgs& args, const AttendState& sums, float* scratch) const {
  TN_DCHECK(function_ != nullptr, "variants are loaded before a step");
  const KeyValueSource& s = args.source;
  const ScoreRules& r = *args.rules;
  const TnVariantArgs call = {
      .pages = s.pages,
      .page_bytes = s.page_bytes,
      .k = reinterpret_cast<const char*>(s.k + args.kv_head * s.k_head_stride),
      .v = reinterpret_cast<const char*>(s.v + args.kv_head * s.v_head_stride),
      .k_slot = s.k_slot_stride,
      .v_slot = s.v_slot_stride,
      .q = args.q,
      .q_row = args.q_row_stride,
      .q_head = args.q_head_stride,
      .state = sums.state,
      .state_row = sums.row_stride,
      .state_head = sums.head_stride,
      .rows = args.rows,
      .group = args.group,
      .first_head = args.first_head,
      .position = args.position,
      .key_begin = args.key_begin,
      .key_end = args.key_end,
      .scale = r.scale,
      .softcap = r.softcap,
      .causal = r.causal,
      .window = r.window,
      .alibi = r.alibi,
      .mask = args.mask,
      .mask_row = args.mask_row,
      .mask_columns = args.mask_columns,
  };
  function_(&call, scratch);
}

KernelVariants::KernelVariants(Isa isa, AttentionJit jit, VariantHooks hooks)
    : isa_(isa),
      jit_(jit),
      hooks_(std::move(hooks)),
      required_(jit == AttentionJit::kRequire || !hooks_.empty()) {}

const CompiledKernel* KernelVariants::Generic(const std::string& why) {
  const std::string note = "generic: " + why;
  if (std::find(notes_.begin(), notes_.end(), note) == notes_.end()) notes_.push_back(note);
  if (required_ && refused_.ok()) {
    refused_ = Unavailable(fmt::format(
        "attention kernels compiled on demand are required ({}), but {}; fix: --attn-jit auto",
        hooks_.empty() ? "--attn-jit require" : "the layers have hooks", why));
  }
  return nullptr;
}

const CompiledKernel* KernelVariants::For(const AttentionSpec& spec) {
  if (jit_ == AttentionJit::kOff && hooks_.empty()) return nullptr;
  const std::lock_guard lock(mutex_);
  if (const std::string why = WhyNoVariant(spec); !why.empty()) return Generic(why);
  if (!compiler_) compiler_ = KernelCompiler::Find(isa_);
  const KernelVariant variant = VariantOf(spec, hooks_);
  const KernelCompiler::Unit unit{variant.Name(), kVariantAbi, variant.Source(), kVariantFunction};
  for (const CompiledKernel& kernel : kernels_) {
    if (kernel.unit().source == unit.source) return &kernel;
  }
  const bool cached = compiler_->Has(unit);
  if (!cached && !compiler_->usable()) return Generic(compiler_->description());
  kernels_.emplace_back(unit);
  notes_.push_back(
      fmt::format("compiled: {}, {}", unit.name,
                  cached ? "from " + compiler_->cache_dir() : "by " + compiler_->description()));
  return &kernels_.back();
}

Result<std::vector<std::string>> KernelVariants::Plan() const {
  const std::lock_guard lock(mutex_);
  TN_RETURN_IF_ERROR(refused_);
  return notes_;
}

Status KernelVariants::Load() {
  const std::lock_guard lock(mutex_);
  TN_RETURN_IF_ERROR(refused_);
  const size_t begin = std::exchange(loaded_, kernels_.size());
  std::vector<Status> results(kernels_.size() - begin);
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < results.size(); i = next++)
      results[i] = kernels_[begin + i].Load(*compiler_);
  };
  const size_t most = std::max(1u, std::thread::hardware_concurrency());
  std::vector<std::thread> helpers;
  for (size_t i = 1; i < std::min(most, results.size()); ++i) helpers.emplace_back(work);
  work();
  for (std::thread& helper : helpers) helper.join();
  for (const Status& status : results) TN_RETURN_IF_ERROR(status);
  return {};
}

}  // namespace tenon::backends
