#include "tenon/attention/backends/flashinfer_attend.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "tenon/tensor/buffer.h"

namespace tenon::backends {
namespace {

constexpr int64_t kMaxStates = 128;
constexpr int64_t kMaxBlockRows = 32;

int64_t KernelFloats(const HeadGeometry& h) {
  return RoundUp(OnlineScratchFloats(h.k_width, h.v_width), StateFloats(0));
}
int64_t StatesFloats(const HeadGeometry& h) {
  return BlockRowsOf(h) * h.group() * StateFloats(h.v_width);
}

// Calls use(begin, end) for the chunks of a range.
template <typename Use>
void ForChunks(const Attender::Keys& keys, Use use) {
  for (int64_t begin = keys.begin; begin < keys.end;) {
    const int64_t end = std::min(keys.end, (begin / keys.chunk + 1) * keys.chunk);
    use(begin, end);
    begin = end;
  }
}

}  // namespace

void ClearState(int64_t v_width, float* state) {
  std::fill_n(state, v_width, 0.0f);
  state[v_width] = -std::numeric_limits<float>::infinity();
  state[v_width + 1] = 0;
}

void NormaliseState(const AttentionKernels& kernels, const float* sums, int64_t v_width,
                    float* state) {
  float stats[2];
  kernels.finish(sums, nullptr, v_width, state, stats);
  if (stats[1] == 0) return ClearState(v_width, state);
  state[v_width] = stats[0] + std::log(stats[1]);
  state[v_width + 1] = 1;
}

void MergeState(const AttentionKernels& kernels, const float* part, int64_t v_width, float* into) {
  if (part[v_width + 1] == 0) return;
  if (into[v_width + 1] == 0) {
    std::memcpy(into, part, static_cast<size_t>(v_width + 2) * sizeof(float));
    return;
  }
  float stats[2];
  kernels.merge({into, into + v_width}, {part, part + v_width}, into, stats, v_width);
  into[v_width] = stats[0] + std::log(stats[1]);
}

int64_t BlockRowsOf(const HeadGeometry& heads) {
  return std::clamp<int64_t>(kMaxStates / heads.group(), 1, kMaxBlockRows);
}

int64_t AttendScratchBytes(const HeadGeometry& heads) {
  const int64_t floats = KernelFloats(heads) + 2 * StatesFloats(heads);
  return RoundUp(floats * static_cast<int64_t>(sizeof(float)), Buffer::kAlignment);
}

Attender::Attender(const AttendRecord& record, const RunContext& context)
    : a_(record),
      context_(context),
      facts_(*record.layer.facts),
      heads_(facts_.heads()),
      rules_(facts_.Rules()),
      by_position_(rules_.window > 0 || rules_.chunk > 0 || rules_.alibi != nullptr ||
                   rules_.bias != nullptr) {
  if (record.source == KeySource::kGathered) rules_.sinks = nullptr;  // counted with the own rows
}

void Attender::AddChunk(const RowBlock& block, int64_t kv_head, const Keys& chunk,
                        const AttendState& target, bool first) const {
  auto* kernel = reinterpret_cast<float*>(context_.scratch);
  const int64_t width = StateFloats(heads_.v_width);
  const AttendState sums{kernel + KernelFloats(heads_), heads_.group() * width, width};
  ScoreRules rules = rules_;
  rules.causal &= !chunk.shared;
  AttendArgs args = ArgsOf(a_, context_, rules, block, kv_head);
  if (!chunk.pages.empty()) args.source.pages = chunk.pages.data();
  args.key_begin = chunk.begin;
  args.key_end = std::min(args.key_end, chunk.end);
  facts_.kernels().online(args, sums, kernel);
  for (int64_t row = 0; row < args.rows; ++row) {
    for (int64_t g = 0; g < args.group; ++g) {
      float* sum = sums.state + row * sums.row_stride + g * sums.head_stride;
      float* state = target.state + row * target.row_stride + g * target.head_stride;
      NormaliseState(facts_.kernels(), sum, heads_.v_width, first ? state : sum);
      if (!first) MergeState(facts_.kernels(), sum, heads_.v_width, state);
    }
  }
}

template <typename Use>
void Attender::ForBlocks(const RowBlock& run, bool shared, Use use) const {
  const bool one_by_one = shared && by_position_;
  const int64_t step = one_by_one ? 1 : BlockRowsOf(heads_);
  for (int64_t done = 0; done < run.rows; done += step) {
    RowBlock block{run.request, run.row + done, std::min(step, run.rows - done)};
    if (one_by_one) block.request = RequestOfRow(*a_.layer.layout, block.row);
    use(block);
  }
}

void Attender::ToOutput(RowBlock rows, int64_t kv_head, const Keys& keys) const {
  const int64_t width = StateFloats(heads_.v_width);
  const AttendState all{
      reinterpret_cast<float*>(context_.scratch) + KernelFloats(heads_) + StatesFloats(heads_),
      heads_.group() * width, width};
  const int64_t first_head = kv_head * heads_.group();
  ForBlocks(rows, keys.shared, [&](const RowBlock& block) {
    if (keys.begin >= keys.end) {
      for (int64_t i = 0; i < block.rows * heads_.group(); ++i)
        ClearState(heads_.v_width, all.state + i * width);
    }
    ForChunks(keys, [&](int64_t begin, int64_t end) {
      AddChunk(block, kv_head, {keys.pages, begin, end, keys.chunk, keys.shared}, all,
               begin == keys.begin);
    });
    for (int64_t row = 0; row < block.rows; ++row) {
      for (int64_t g = 0; g < heads_.group(); ++g) {
        const int64_t at = (block.row + row) * heads_.heads + first_head + g;
        facts_.kernels().finish(
            all.state + row * all.row_stride + g * width,
            rules_.sinks == nullptr ? nullptr : rules_.sinks + first_head + g, heads_.v_width,
            a_.out.For<float>(context_.thread) + at * heads_.v_width,
            a_.stats.base == nullptr ? nullptr : a_.stats.For<float>(context_.thread) + at * 2);
      }
    }
  });
}

void Attender::ToSlots(std::span<const RowBlock> runs, int64_t kv_head, const Keys& keys,
                       float* slots) const {
  const int64_t width = StateFloats(heads_.v_width);
  ForChunks(keys, [&](int64_t begin, int64_t end) {
    float* slot = slots + kv_head * heads_.group() * width;
    for (const RowBlock& run : runs) {
      ForBlocks(run, keys.shared, [&](const RowBlock& block) {
        AddChunk(block, kv_head, {keys.pages, begin, end, keys.chunk, keys.shared},
                 {slot, heads_.heads * width, width}, begin == keys.begin);
        slot += block.rows * heads_.heads * width;
      });
    }
  });
}

}  // namespace tenon::backends
