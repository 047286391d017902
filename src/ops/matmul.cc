#include "tenon/ops/matmul.h"

#include <algorithm>

#include "tenon/kernels/table.h"
#include "tenon/numeric/decode.h"
#include "tenon/tensor/buffer.h"

namespace tenon {
namespace {

struct MatmulArgs {
  Operand x, y;
  const MatrixRef* segments = nullptr;
  int32_t count = 0;
  int64_t num_tokens = 0;
  int64_t x_stride = 0;  // floats
  int64_t y_stride = 0;
  const KernelTable* kernels = nullptr;
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
      a.kernels->matmul[static_cast<int>(w.dtype)](args, from - first, to - first,
                                                   reinterpret_cast<float*>(context.scratch));
    }
    first += w.rows;
  }
}

struct EmbedArgs {
  Operand y;
  const MatrixRef* table = nullptr;
  const int32_t* ids = nullptr;
  float scale = 1;
};

void RunEmbed(const EmbedArgs& a, const RunContext& context, int64_t begin, int64_t end) {
  const DecodeRowFn decode = DecoderOf(a.table->dtype);
  for (int64_t t = begin; t < end; ++t) {
    float* y = a.y.For<float>(context.thread) + t * a.table->cols;
    decode(a.table->data + a.ids[t] * a.table->row_bytes, a.table->cols, y);
    if (a.scale == 1.0f) continue;
    for (int64_t i = 0; i < a.table->cols; ++i) y[i] *= a.scale;
  }
}

struct GatherArgs {
  Operand x, y;
  const int32_t* rows = nullptr;
  int64_t x_stride = 0;
  int64_t width = 0;
};

void RunGather(const GatherArgs& a, const RunContext& context, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    std::memcpy(a.y.For<float>(context.thread) + i * a.width,
                a.x.For<float>(context.thread) + a.rows[i] * a.x_stride,
                static_cast<size_t>(a.width) * sizeof(float));
  }
}

// Rows handed out at a time: enough work to be worth a claim, small enough to balance.
int64_t MatmulGrain(int64_t rows, int64_t cols, int64_t num_tokens) {
  constexpr int64_t kMacsPerClaim = 64 * 1024;
  const int64_t by_work = kMacsPerClaim / std::max<int64_t>(1, cols * num_tokens);
  return std::clamp<int64_t>(by_work, 1, std::max<int64_t>(1, rows / 16));
}

}  // namespace

Value Matmul(Tape& tape, std::span<const MatrixRef> segments, const Value& x) {
  TN_CHECK(x.shape().rank() == 2 && x.dtype() == DType::kF32,
           "a matmul's input is [num_tokens, cols] fp32");
  int64_t rows = 0;
  for (const MatrixRef& segment : segments) {
    TN_CHECK(segment.cols == x.dim(1), "the weight is as wide as its input");
    TN_CHECK(tape.kernels().matmul[static_cast<int>(segment.dtype)] != nullptr,
             "a kernel for the weight's dtype");
    rows += segment.rows;
  }
  const Value y = tape.NewValue(DType::kF32, {x.dim(0), rows});
  const KernelTable& kernels = tape.kernels();
  RecordBuilder<MatmulArgs> record(tape, "matmul",
                                   kernels.matmul_names[static_cast<int>(segments[0].dtype)]);
  record.args().segments = segments.data();
  record.args().count = static_cast<int32_t>(segments.size());
  record.args().num_tokens = x.dim(0);
  record.args().x_stride = x.stride_bytes(0) / 4;
  record.args().y_stride = rows;
  record.args().kernels = &kernels;
  record.Read(&MatmulArgs::x, x).Write(&MatmulArgs::y, y);
  record.Commit<RunMatmul>({.items = rows,
                            .grain = MatmulGrain(rows, x.dim(1), x.dim(0)),
                            .scratch_bytes = RoundUp(x.dim(1) * 4, Buffer::kAlignment)});
  return y;
}

Value Embed(Tape& tape, const MatrixRef& table, const int32_t* ids, int64_t num_tokens,
            float scale) {
  const Value y = tape.NewValue(DType::kF32, {num_tokens, table.cols});
  RecordBuilder<EmbedArgs> record(tape, "embed", "reference/embed");
  record.args().table = &table;
  record.args().ids = ids;
  record.args().scale = scale;
  record.Write(&EmbedArgs::y, y);
  record.Commit<RunEmbed>({.items = num_tokens});
  return y;
}

Value GatherRows(Tape& tape, const Value& x, const int32_t* rows, int64_t count) {
  TN_CHECK(x.shape().rank() == 2 && x.dtype() == DType::kF32,
           "rows of a [num_tokens, width] fp32 value");
  const Value y = tape.NewValue(DType::kF32, {count, x.dim(1)});
  RecordBuilder<GatherArgs> record(tape, "gather_rows", "reference/gather_rows");
  record.args().rows = rows;
  record.args().x_stride = x.stride_bytes(0) / 4;
  record.args().width = x.dim(1);
  record.Read(&GatherArgs::x, x).Write(&GatherArgs::y, y);
  record.Commit<RunGather>({.items = count});
  return y;
}

}  // namespace tenon
