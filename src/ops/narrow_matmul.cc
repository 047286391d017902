#include "tenon/ops/narrow_matmul.h"

#include <algorithm>

#include "tenon/kernels/table.h"
#include "tenon/ops/rows.h"
#include "tenon/tensor/buffer.h"

namespace tenon {
namespace {

// --- packing

struct PackArgs {
  Operand x, packed;
  PackRowFunction* row = nullptr;
  PackBlockFunction* block = nullptr;
  int64_t x_stride = 0;  // floats
  int64_t cols = 0;
  int64_t num_tokens = 0;
  int64_t unit_tokens = 1;  // of a packed row or block
  int64_t unit_bytes = 0;
};

void RunPackRows(const PackArgs& a, const RunContext& context, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    a.row(a.x.For<float>(context.thread) + t * a.x_stride, a.cols,
          a.packed.For<std::byte>(context.thread) + t * a.unit_bytes);
  }
}

void RunPackBlocks(const PackArgs& a, const RunContext& context, int64_t begin, int64_t end) {
  for (int64_t b = begin; b < end; ++b) {
    const int64_t t = b * a.unit_tokens;
    a.block(a.x.For<float>(context.thread) + t * a.x_stride, a.x_stride,
            std::min(a.unit_tokens, a.num_tokens - t), a.cols,
            a.packed.For<std::byte>(context.thread) + b * a.unit_bytes);
  }
}

PackArgs& FillPack(PackArgs& args, const Value& x, int64_t unit_bytes) {
  args.x_stride = FloatStride(x, 0);
  args.cols = x.dim(1);
  args.num_tokens = x.dim(0);
  args.unit_bytes = unit_bytes;
  return args;
}

// --- few tokens

struct FewArgs {
  Operand x, y;
  const MatrixRef* segments = nullptr;  // of one kernel
  int32_t count = 0;
  int32_t group_rows = kMatmulTileRows;
  int64_t num_tokens = 0;
  int64_t x_stride = 0;  // bytes
  int64_t y_stride = 0;  // floats
  NarrowMatmulFunction* matmul = nullptr;
};

// Items are groups of rows, segment after segment, each starting anew.
void RunFew(const FewArgs& a, const RunContext& context, int64_t begin, int64_t end) {
  int64_t first_group = 0;
  int64_t first_row = 0;
  for (int32_t s = 0; s < a.count && first_group < end; ++s) {
    const MatrixRef& w = a.segments[s];
    const int64_t groups = CeilDiv(w.rows, a.group_rows);
    const int64_t from = std::max(begin, first_group) - first_group;
    const int64_t to = std::min(end - first_group, groups);
    if (from < to) {
      NarrowMatmulArgs args;
      args.w = w.data;
      args.row_bytes = w.row_bytes;
      args.cols = w.cols;
      args.bias = w.bias;
      args.x = a.x.For<std::byte>(context.thread);
      args.x_stride = a.x_stride;
      args.num_tokens = a.num_tokens;
      args.y = a.y.For<float>(context.thread) + first_row;
      args.y_stride = a.y_stride;
      args.scales.grid = w.scales;
      a.matmul(args, from * a.group_rows, std::min(w.rows, to * a.group_rows));
    }
    first_group += groups;
    first_row += w.rows;
  }
}

void RecordFew(Tape& tape, std::span<const MatrixRef> segments, const Value& packed,
               const Value& y) {
  const FewTokensKernel& kernel = FewOf(tape.kernels(), segments[0]);
  const int64_t group_rows = GroupRowsOf(segments[0]);
  int64_t groups = 0;
  for (const MatrixRef& w : segments) groups += CeilDiv(w.rows, group_rows);
  RecordBuilder<FewArgs> record(tape, "matmul", kernel.matmul.name);
  record.args().segments = segments.data();
  record.args().count = static_cast<int32_t>(segments.size());
  record.args().group_rows = static_cast<int32_t>(group_rows);
  record.args().num_tokens = y.dim(0);
  record.args().x_stride = packed.stride_bytes(0);
  record.args().y_stride = FloatStride(y, 0);
  record.args().matmul = kernel.matmul.run;
  record.Read(&FewArgs::x, packed).Write(&FewArgs::y, y);
  record.Commit<RunFew>({.items = groups,
                         .grain = FewGrain(segments[0], groups, segments[0].row_bytes * group_rows),
                         .weight_bytes = WeightBytes(segments),
                         .operations = Operations(segments, y.dim(0))});
}

// --- many tokens

struct ManyArgs {
  Operand x, y;
  const MatrixRef* segments = nullptr;  // of one kernel
  int32_t count = 0;
  int64_t num_tokens = 0;
  int64_t y_stride = 0;  // floats
  int64_t panels = 1;
  int64_t part_tokens = 0;
  PanelFunction* multiply = nullptr;
};

int64_t PanelsOf(const MatrixRef& w) { return CeilDiv(w.rows, kPanelRows); }

// Items are (part of the tokens, panel), segment after segment.
void RunMany(const ManyArgs& a, const RunContext& context, int64_t begin, int64_t end) {
  for (int64_t item = begin; item < end; ++item) {
    int64_t panel = item % a.panels;
    const int64_t part = item / a.panels;
    int64_t first_row = 0;
    int32_t s = 0;
    for (; panel >= PanelsOf(a.segments[s]); ++s) {
      panel -= PanelsOf(a.segments[s]);
      first_row += a.segments[s].rows;
    }
    const MatrixRef& w = a.segments[s];
    PanelArgs args;
    args.w = w.data;
    args.row_bytes = w.row_bytes;
    args.rows = w.rows;
    args.cols = w.cols;
    args.bias = w.bias;
    args.x = a.x.For<std::byte>(context.thread);
    args.num_tokens = a.num_tokens;
    args.y = a.y.For<float>(context.thread) + first_row;
    args.y_stride = a.y_stride;
    args.scales.grid = w.scales;
    a.multiply(args, panel * kPanelRows, part * a.part_tokens,
               std::min(a.num_tokens, (part + 1) * a.part_tokens), context.scratch);
  }
}

}  // namespace

void CheckScales(const MatrixRef& w) {
  const ScaleGrid& grid = w.scales;
  if (!grid.present()) {
    TN_CHECK(w.dtype != DType::kI8, "int8 codes have scales");
    return;
  }
  TN_CHECK(w.dtype == DType::kI8 || w.dtype == DType::kF8E4M3, "scales of codes");
  TN_CHECK(w.form == HeldForm::kRows, "codes with scales are read as rows");
  TN_CHECK(grid.cols >= w.cols || (grid.cols > 0 && grid.cols % kScaleCols == 0),
           "a scale for whole steps of columns");
}

const Fp32Kernel& Fp32KernelOf(const KernelTable& kernels, const MatrixRef& w) {
  return w.scales.present() ? kernels.matmul.Scaled(w.dtype).fp32 : kernels.matmul.For(w.dtype);
}

bool RoundsToInt8(const KernelTable& kernels, const MatrixRef& w) {
  return w.input == InputRounding::kInt8PerToken && w.compute != Compute::kFp32 &&
         w.scales.present() && w.scales.cols >= w.cols && w.cols <= kMostInt8Cols &&
         kernels.matmul.Scaled(w.dtype).per_token.matmul.run != nullptr;
}

bool HaveOneKernel(const KernelTable& kernels, const MatrixRef& a, const MatrixRef& b) {
  return a.dtype == b.dtype && a.compute == b.compute && a.form == b.form &&
         a.scales.present() == b.scales.present() &&
         RoundsToInt8(kernels, a) == RoundsToInt8(kernels, b);
}

const FewTokensKernel& FewOf(const KernelTable& kernels, const MatrixRef& w) {
  if (RoundsToInt8(kernels, w)) return kernels.matmul.Scaled(w.dtype).per_token;
  if (w.scales.present()) return kernels.matmul.Scaled(w.dtype).few;
  return w.form == HeldForm::kPacked ? kernels.matmul.Packed(w.dtype).few
                                     : kernels.matmul.Few(w.dtype);
}

const PanelKernel& PanelsFor(const KernelTable& kernels, const MatrixRef& w) {
  if (w.scales.present()) return kernels.matmul.Scaled(w.dtype).panels;
  return w.form == HeldForm::kPacked ? kernels.matmul.Packed(w.dtype).panels
                                     : kernels.matmul.Panels(w.dtype);
}

bool IsNarrow(const KernelTable& kernels, const MatrixRef& w, int64_t num_tokens) {
  if (w.compute == Compute::kFp32 || num_tokens == 0) return false;
  return ReadsRows(kernels, w, num_tokens) ? FewOf(kernels, w).matmul.run != nullptr
                                           : PanelsFor(kernels, w).run != nullptr;
}

bool ReadsRows(const KernelTable& kernels, const MatrixRef& w, int64_t num_tokens) {
  return num_tokens <= kFewTokens || RoundsToInt8(kernels, w);
}

int64_t GroupRowsOf(const MatrixRef& w) {
  return w.form == HeldForm::kPacked ? kPackedRows : kMatmulTileRows;
}

int64_t FewGrain(const MatrixRef& w, int64_t groups, int64_t group_bytes) {
  constexpr int64_t kClaims = 12;
  constexpr int64_t kBytes = 16384;
  const int64_t by_bytes = kBytes / std::max<int64_t>(1, group_bytes);
  const int64_t grain = std::max<int64_t>({1, by_bytes, CeilDiv(groups, kClaims)});
  return w.form == HeldForm::kPacked ? RoundUp(grain, kPackedStreams) : grain;
}

int64_t PartTokens(const KernelTable& kernels, int64_t panels, int64_t cols, int64_t num_tokens) {
  constexpr int64_t kItems = 8;
  constexpr int64_t kLeastTokens = 96;
  constexpr int64_t kInputBytes = 1 << 20;
  constexpr int64_t kWorthExpanding = 192;  // tokens
  const int64_t for_items = std::min(CeilDiv(kItems, std::max<int64_t>(1, panels)),
                                     std::max<int64_t>(1, num_tokens / kLeastTokens));
  const int64_t for_cache = std::min(CeilDiv(2 * cols * num_tokens, kInputBytes),
                                     std::max<int64_t>(1, num_tokens / kWorthExpanding));
  return RoundUp(CeilDiv(num_tokens, std::max(for_items, for_cache)), kernels.matmul.blocks.tokens);
}

void MultiplyBlocks(Tape& tape, std::span<const MatrixRef> segments, const Value& blocks,
                    const Value& y) {
  const PanelKernel& kernel = PanelsFor(tape.kernels(), segments[0]);
  int64_t panels = 0;
  for (const MatrixRef& w : segments) panels += PanelsOf(w);
  RecordBuilder<ManyArgs> record(tape, "matmul", kernel.name);
  ManyArgs& args = record.args();
  args.segments = segments.data();
  args.count = static_cast<int32_t>(segments.size());
  args.num_tokens = y.dim(0);
  args.y_stride = FloatStride(y, 0);
  args.panels = panels;
  args.part_tokens = PartTokens(tape.kernels(), panels, segments[0].cols, y.dim(0));
  args.multiply = kernel.run;
  record.Read(&ManyArgs::x, blocks).Write(&ManyArgs::y, y);
  record.Commit<RunMany>({.items = panels * CeilDiv(y.dim(0), args.part_tokens),
                          .scratch_bytes = PanelBytes(segments[0].cols),
                          .weight_bytes = WeightBytes(segments),
                          .operations = Operations(segments, y.dim(0))});
}

Value NarrowMatmul::Packed(ActivationForm form) {
  std::optional<Value>& packed = packed_[static_cast<int>(form)];
  if (packed) return *packed;
  const Kernel<PackRowFunction>& kernel = tape_.kernels().matmul.Pack(form);
  const int64_t bytes = ActivationRowBytes(form, x_.dim(1));
  // Few tokens are cheap enough for each thread to do for itself, which saves a meeting.
  const bool everyone = x_.dim(0) <= kFewTokens;
  const Shape shape{x_.dim(0), bytes};
  packed = everyone ? tape_.NewPrivateValue(DType::kU8, shape) : tape_.NewValue(DType::kU8, shape);
  RecordBuilder<PackArgs> record(tape_, "pack", kernel.name);
  FillPack(record.args(), x_, bytes).row = kernel.run;
  record.Read(&PackArgs::x, x_).Write(&PackArgs::packed, *packed).TakeRowsOf(x_, 1);
  record.Commit<RunPackRows>({.items = x_.dim(0), .everyone = everyone});
  return *packed;
}

Value NarrowMatmul::Blocks() {
  if (blocks_) return *blocks_;
  const TokenBlocks& form = tape_.kernels().matmul.blocks;
  const int64_t count = CeilDiv(x_.dim(0), form.tokens);
  const int64_t bytes = form.Bytes(x_.dim(1));
  blocks_ = tape_.NewValue(DType::kU8, {count, bytes});
  RecordBuilder<PackArgs> record(tape_, "pack", form.pack.name);
  PackArgs& args = FillPack(record.args(), x_, bytes);
  args.unit_tokens = form.tokens;
  args.block = form.pack.run;
  record.Read(&PackArgs::x, x_).Write(&PackArgs::packed, *blocks_).TakeRowsOf(x_, form.tokens);
  record.Commit<RunPackBlocks>({.items = count});
  return *blocks_;
}

bool NarrowMatmul::Record(std::span<const MatrixRef> segments, const Value& y) {
  if (!IsNarrow(tape_.kernels(), segments[0], x_.dim(0))) return false;
  if (ReadsRows(tape_.kernels(), segments[0], x_.dim(0))) {
    RecordFew(tape_, segments, Packed(FewOf(tape_.kernels(), segments[0]).form), y);
  } else {
    MultiplyBlocks(tape_, segments, Blocks(), y);
  }
  return true;
}

}  // namespace tenon
