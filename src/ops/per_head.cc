#include "tenon/ops/per_head.h"

namespace tenon {
namespace {

struct PerHeadArgs {
  Operand x, y;
  const MatrixRef* matrices = nullptr;  // [heads]
  int64_t heads = 0;
  int64_t x_row = 0, x_head = 0;  // strides, floats
  int64_t y_row = 0, y_head = 0;
};

void RunPerHead(const PerHeadArgs& a, const RunContext& context, int64_t begin, int64_t end) {
  for (int64_t item = begin; item < end; ++item) {
    const int64_t t = item / a.heads;
    const int64_t h = item % a.heads;
    const MatrixRef& m = a.matrices[h];
    const float* x = a.x.For<float>(context.thread) + t * a.x_row + h * a.x_head;
    float* y = a.y.For<float>(context.thread) + t * a.y_row + h * a.y_head;
    const float* w = reinterpret_cast<const float*>(m.data);
    for (int64_t r = 0; r < m.rows; ++r, w += m.cols) {
      double sum = 0;
      for (int64_t c = 0; c < m.cols; ++c)
        sum += static_cast<double>(w[c]) * static_cast<double>(x[c]);
      y[r] = static_cast<float>(sum);
    }
  }
}

struct CopyArgs {
  Operand x, y;
  int64_t heads = 0, width = 0;
  int64_t x_row = 0, x_head = 0;  // strides, floats
  int64_t y_row = 0, y_head = 0;
};

void RunCopy(const CopyArgs& a, const RunContext& context, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    for (int64_t h = 0; h < a.heads; ++h) {
      std::memcpy(a.y.For<float>(context.thread) + t * a.y_row + h * a.y_head,
                  a.x.For<float>(context.thread) + t * a.x_row + h * a.x_head,
                  static_cast<size_t>(a.width) * sizeof(float));
    }
  }
}

int64_t FloatStride(const Value& value, int dim) {
  return value.stride_bytes(dim) / static_cast<int64_t>(sizeof(float));
}

}  // namespace

Value MatmulPerHead(Tape& tape, std::span<const MatrixRef> matrices, const Value& x,
                    int64_t extra) {
  TN_CHECK(x.shape().rank() == 3 && x.dim(1) == static_cast<int64_t>(matrices.size()) &&
               x.dim(2) == matrices[0].cols && x.dtype() == DType::kF32,
           "one matrix per head, as wide as the head");
  const Value y = tape.NewValue(DType::kF32, {x.dim(0), x.dim(1), matrices[0].rows + extra});
  RecordBuilder<PerHeadArgs> record(tape, "matmul_per_head", "reference/matmul_per_head");
  PerHeadArgs& args = record.args();
  args.matrices = matrices.data();
  args.heads = x.dim(1);
  args.x_row = FloatStride(x, 0);
  args.x_head = FloatStride(x, 1);
  args.y_row = FloatStride(y, 0);
  args.y_head = FloatStride(y, 1);
  record.Read(&PerHeadArgs::x, x).Write(&PerHeadArgs::y, y);
  record.Commit<RunPerHead>({.items = x.dim(0) * x.dim(1)});
  return y;
}

void CopyInto(Tape& tape, const Value& x, const Value& target) {
  TN_CHECK(x.shape() == target.shape() && x.shape().rank() == 3 && x.dtype() == DType::kF32,
           "copies keep the shape");
  RecordBuilder<CopyArgs> record(tape, "copy", "reference/copy");
  CopyArgs& args = record.args();
  args.heads = x.dim(1);
  args.width = x.dim(2);
  args.x_row = FloatStride(x, 0);
  args.x_head = FloatStride(x, 1);
  args.y_row = FloatStride(target, 0);
  args.y_head = FloatStride(target, 1);
  record.Read(&CopyArgs::x, x).Update(&CopyArgs::y, target);
  record.Commit<RunCopy>({.items = x.dim(0), .grain = 8});
}

}  // namespace tenon
