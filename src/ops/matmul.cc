#include "tenon/ops/matmul.h"

#include <algorithm>

#include "tenon/kernels/table.h"
#include "tenon/ops/narrow_matmul.h"
#include "tenon/ops/rows.h"
#include "tenon/tensor/buffer.h"

namespace tenon {
namespace {

struct MatmulArgs {
  Operand x, y;
  const MatrixRef* segments = nullptr;  // of one kernel
  int32_t count = 0;
  int64_t num_tokens = 0;
  int64_t x_stride = 0;  // floats
  int64_t y_stride = 0;  // floats
  MatmulFunction* matmul = nullptr;
};

// Items are output rows of all segments, one after the other.
void RunMatmul(const MatmulArgs& a, const RunContext& context, int64_t begin, int64_t end) {
  int64_t first = 0;  // output row where the segment starts
  for (int32_t s = 0; s < a.count && first < end; ++s) {
    const MatrixRef& w = a.segments[s];
    const int64_t from = std::max(begin, first);
    const int64_t to = std::min(end, first + w.rows);
    if (from < to) {
      MatmulKernelArgs args;
      args.w = w.data;
      args.row_bytes = w.row_bytes;
      args.cols = w.cols;
      args.bias = w.bias;
      args.x = a.x.For<float>(context.thread);
      args.x_stride = a.x_stride;
      args.num_tokens = a.num_tokens;
      args.y = a.y.For<float>(context.thread) + first;
      args.y_stride = a.y_stride;
      args.scales.grid = w.scales;
      a.matmul(args, from - first, to - first, reinterpret_cast<float*>(context.scratch));
    }
    first += w.rows;
  }
}

// Rows handed out at a time: enough work to be worth a claim, small enough to balance.
int64_t MatmulGrain(int64_t rows, int64_t cols, int64_t num_tokens) {
  constexpr int64_t kMacsPerClaim = 65536;
  constexpr int64_t kClaims = 16;
  const int64_t by_work = kMacsPerClaim / std::max<int64_t>(1, cols * num_tokens);
  const int64_t fair = std::max<int64_t>(1, rows / kClaims);
  // Kernels work on whole groups of rows.
  return RoundUp(std::clamp<int64_t>(by_work, std::min(kMatmulScratchRows, fair), fair),
                 kMatmulTileRows);
}

// One record for segments of one kernel; y is their slice of the result.
void RecordMatmul(Tape& tape, std::span<const MatrixRef> segments, const Value& x, const Value& y) {
  TN_CHECK(segments[0].form == HeldForm::kRows, "fp32 products read rows");
  const Kernel<MatmulFunction>& kernel = Fp32KernelOf(tape.kernels(), segments[0]);
  TN_CHECK(kernel.run != nullptr, "a kernel for the weight's dtype");
  RecordBuilder<MatmulArgs> record(tape, "matmul", kernel.name);
  record.args().segments = segments.data();
  record.args().count = static_cast<int32_t>(segments.size());
  record.args().num_tokens = x.dim(0);
  record.args().x_stride = FloatStride(x, 0);
  record.args().y_stride = FloatStride(y, 0);
  record.args().matmul = kernel.run;
  record.Read(&MatmulArgs::x, x).Write(&MatmulArgs::y, y);
  record.Commit<RunMatmul>(
      {.items = x.dim(0) == 0 ? 0 : y.dim(1),
       .grain = MatmulGrain(y.dim(1), x.dim(1), x.dim(0)),
       .scratch_bytes = RoundUp(4 * MatmulScratchFloats(x.dim(1)), Buffer::kAlignment),
       .weight_bytes = WeightBytes(segments),
       .operations = Operations(segments, x.dim(0))});
}

struct EmbedArgs {
  Operand y;
  const MatrixRef* table = nullptr;
  decltype(RowKernels().embed.run) embed = nullptr;
  const int32_t* ids = nullptr;
  float scale = 1;
};

void RunEmbed(const EmbedArgs& a, const RunContext& context, int64_t begin, int64_t end) {
  EmbedKernelArgs args;
  args.table = a.table->data;
  args.dtype = a.table->dtype;
  args.row_bytes = a.table->row_bytes;
  args.cols = a.table->cols;
  args.scale = a.scale;
  args.ids = a.ids;
  args.y = a.y.For<float>(context.thread);
  a.embed(args, begin, end);
}

struct GatherArgs {
  Operand x, y;
  decltype(RowKernels().gather.run) gather = nullptr;
  const int32_t* rows = nullptr;
  int64_t x_stride = 0;  // floats
  int64_t width = 0;
};

void RunGather(const GatherArgs& a, const RunContext& context, int64_t begin, int64_t end) {
  a.gather(
      {a.x.For<float>(context.thread), a.x_stride, a.width, a.rows, a.y.For<float>(context.thread)},
      begin, end);
}

}  // namespace

std::string_view NameOf(Compute compute) { return compute == Compute::kFp32 ? "fp32" : "bf16"; }

int64_t WeightBytes(std::span<const MatrixRef> segments) {
  int64_t bytes = 0;
  for (const MatrixRef& w : segments) {
    bytes += w.rows * w.row_bytes;
    if (!w.scales.present()) continue;
    const int64_t scales = CeilDiv(w.rows, w.scales.rows) * CeilDiv(w.cols, w.scales.cols);
    bytes += scales * static_cast<int64_t>(sizeof(float));
  }
  return bytes;
}

int64_t Operations(std::span<const MatrixRef> segments, int64_t num_tokens) {
  int64_t operations = 0;
  for (const MatrixRef& w : segments) operations += 2 * w.rows * w.cols * num_tokens;
  return operations;
}

Value Matmul(Tape& tape, std::span<const MatrixRef> segments, const Value& x) {
  TN_CHECK(IsMatrix(x) && !segments.empty(), "a matmul's input is [num_tokens, cols] fp32");
  int64_t rows = 0;
  for (const MatrixRef& segment : segments) {
    TN_CHECK(segment.cols == x.dim(1), "the weight is as wide as its input");
    CheckScales(segment);
    rows += segment.rows;
  }
  const Value y = tape.NewValue(DType::kF32, {x.dim(0), rows});
  NarrowMatmul narrow(tape, x);
  int64_t first = 0;  // output row where the run of segments starts
  for (size_t begin = 0; begin < segments.size();) {
    size_t end = begin;
    int64_t run_rows = 0;
    while (end < segments.size() && HaveOneKernel(tape.kernels(), segments[begin], segments[end])) {
      run_rows += segments[end++].rows;
    }
    const std::span<const MatrixRef> alike = segments.subspan(begin, end - begin);
    const Value part = y.Slice(1, first, first + run_rows);
    if (!narrow.Record(alike, part)) RecordMatmul(tape, alike, x, part);
    first += run_rows;
    begin = end;
  }
  return y;
}

Value Embed(Tape& tape, const MatrixRef& table, const int32_t* ids, int64_t num_tokens,
            float scale) {
  TN_CHECK(InfoOf(table.dtype).is_float && table.form == HeldForm::kRows, "a table of rows");
  TN_CHECK(!table.scales.present(), "a table without scales");
  const auto [y, everyone] = NewRowResult(tape, DType::kF32, Shape{num_tokens, table.cols});
  RecordBuilder<EmbedArgs> record(tape, "embed", tape.kernels().rows.embed.name);
  record.args().table = &table;
  record.args().embed = tape.kernels().rows.embed.run;
  record.args().ids = ids;
  record.args().scale = scale;
  record.Write(&EmbedArgs::y, y);
  record.Commit<RunEmbed>(
      {.items = num_tokens, .grain = RowGrain(num_tokens), .everyone = everyone});
  return y;
}

Value GatherRows(Tape& tape, const Value& x, const int32_t* rows, int64_t count) {
  TN_CHECK(IsMatrix(x), "rows of a [num_tokens, width] fp32 value");
  const auto [y, everyone] = NewRowResult(tape, DType::kF32, Shape{count, x.dim(1)});
  RecordBuilder<GatherArgs> record(tape, "gather_rows", tape.kernels().rows.gather.name);
  record.args().gather = tape.kernels().rows.gather.run;
  record.args().rows = rows;
  record.args().x_stride = FloatStride(x, 0);
  record.args().width = x.dim(1);
  record.Read(&GatherArgs::x, x).Write(&GatherArgs::y, y);
  record.Commit<RunGather>({.items = count, .everyone = everyone});
  return y;
}

}  // namespace tenon
