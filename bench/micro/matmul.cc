// Products of a few to many tokens with weight matrices that are not in any cache: the pool holds
// as many matrices as fit, and each product takes the next one.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "cases.h"
#include "tape_run.h"
#include "tenon/ops/matmul.h"
#include "tenon/ops/probe.h"

namespace tenon::bench {
namespace {

struct MatmulShape {
  DType dtype = DType::kBF16;
  int64_t cols = 0;  // K
  int64_t rows = 0;  // N
  int64_t tokens = 1;
};

// Random blocks of the format, a stretch of them repeated over the whole pool.
void FillPool(const Buffer& pool, DType dtype) {
  constexpr int64_t kStretchBlocks = 16384;
  const int64_t block = InfoOf(dtype).block_bytes;
  const int64_t stretch = std::min(kStretchBlocks * block, pool.size() / block * block);
  std::mt19937 random(1);
  for (int64_t at = 0; at < stretch; at += block) test::PutRandom(dtype, random, pool.data() + at);
  for (int64_t at = stretch; at < pool.size(); at += stretch) {
    std::memcpy(pool.data() + at, pool.data(), test::At(std::min(stretch, pool.size() - at)));
  }
}

class ColdMatmul {
 public:
  ColdMatmul(const Setup& setup, const MatmulShape& shape)
      : setup_(setup), run_(*setup.kernels, *setup.team) {
    const int64_t row_bytes = RowBytes(shape.dtype, shape.cols);
    matrix_bytes_ = shape.rows * row_bytes;
    count_ = setup.pool->size() / matrix_bytes_;
    TN_CHECK(count_ > 0, "the pool holds at least one matrix");
    FillPool(*setup.pool, shape.dtype);
    weight_ = {.data = setup.pool->data(),
               .dtype = shape.dtype,
               .rows = shape.rows,
               .cols = shape.cols,
               .row_bytes = row_bytes,
               .compute = Compute::kBf16};
    Matmul(run_.tape(), {&weight_, 1}, run_.Input({shape.tokens, shape.cols}));
    run_.Seal();
  }

  const char* kernel() { return run_.KernelOf("matmul"); }
  int64_t count() const { return count_; }
  double matrix_bytes() const { return static_cast<double>(matrix_bytes_); }

  // The product with the next `n` matrices; the tape reads the matrix's address when it runs.
  void Multiply(int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      weight_.data = setup_.pool->data() + next_ * matrix_bytes_;
      next_ = (next_ + 1) % count_;
      run_.Run();
    }
  }
  double SecondsToReadAll() const {
    double seconds = 0;
    for (int64_t i = 0; i < count_; ++i) {
      seconds += SecondsToRead(*setup_.kernels, *setup_.team,
                               setup_.pool->data() + i * matrix_bytes_, matrix_bytes_);
    }
    return seconds;
  }

 private:
  const Setup& setup_;
  TapeRun run_;
  MatrixRef weight_;
  int64_t matrix_bytes_ = 0;
  int64_t count_ = 0;
  int64_t next_ = 0;
};

Case MakeCase(const Setup& setup, const MatmulShape& shape, bool whole_pool) {
  const auto matmul = std::make_shared<ColdMatmul>(setup, shape);
  // Many tokens take long: a pass of 8 G multiply-adds is enough.
  const double per_matrix = 2.0 * static_cast<double>(shape.rows * shape.cols * shape.tokens);
  const auto enough = static_cast<int64_t>(16e9 / per_matrix) + 1;
  const int64_t units = whole_pool ? matmul->count() : std::min(matmul->count(), enough);
  Case work;
  work.kernel = matmul->kernel();
  work.unit = "matrix";
  work.units = units;
  if (shape.tokens > 1) work.operations = per_matrix * static_cast<double>(units);
  work.pass = [matmul, units] { matmul->Multiply(units); };
  if (whole_pool) {
    work.bytes = matmul->matrix_bytes() * static_cast<double>(units);
    work.read = [matmul] { return matmul->SecondsToReadAll(); };
  }
  return work;
}

void Add(std::vector<CaseSpec>& cases, const char* group, const MatmulShape& shape) {
  const bool whole_pool = std::string_view(group) != "gemm";
  cases.push_back(
      {group,
       fmt::format("{} K{} N{} M{}", NameOf(shape.dtype), shape.cols, shape.rows, shape.tokens),
       [shape, whole_pool](const Setup& setup) { return MakeCase(setup, shape, whole_pool); }});
}

}  // namespace

void AddMatmulCases(std::vector<CaseSpec>& cases) {
  for (const DType dtype : {DType::kBF16, DType::kF32, DType::kQ8_0, DType::kQ4_0, DType::kQ4_1,
                            DType::kQ4_K, DType::kQ6_K}) {
    Add(cases, "gemv", {dtype, 2048, 8192});
    Add(cases, "gemv", {dtype, 4096, 4096});
  }
  for (const DType dtype : {DType::kBF16, DType::kQ8_0, DType::kQ4_0, DType::kQ4_1}) {
    for (const int64_t tokens : {1, 2, 4, 8, 16, 32}) {
      Add(cases, "narrow", {dtype, 2048, 8192, tokens});
    }
  }
  for (const int64_t tokens : {32, 128, 512}) {
    Add(cases, "gemm", {DType::kBF16, 2048, 2048, tokens});
    Add(cases, "gemm", {DType::kBF16, 2048, 8192, tokens});
    Add(cases, "gemm", {DType::kBF16, 4096, 4096, tokens});
  }
}

}  // namespace tenon::bench
