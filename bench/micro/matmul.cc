// Products of a few to many tokens with weight matrices that are not in any cache: the pool holds
// as many matrices as fit, and each product takes the next one.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "cases.h"
#include "tape_run.h"
#include "tenon/ops/matmul.h"
#include "tenon/ops/pack_weights.h"
#include "tenon/ops/probe.h"

namespace tenon::bench {
namespace {

// Scales beside codes, and what inputs are rounded to.
enum class Codes { kNone, kChannels, kBlocks, kInt8Inputs };
const char* SuffixOf(Codes codes) {
  switch (codes) {
    case Codes::kNone:
      return "";
    case Codes::kChannels:
      return " channels";
    case Codes::kBlocks:
      return " blocks";
    case Codes::kInt8Inputs:
      return " int8 inputs";
  }
  return "";
}

struct MatmulShape {
  DType dtype = DType::kBF16;
  int64_t cols = 0;  // K
  int64_t rows = 0;  // N
  int64_t tokens = 1;
  bool packed = false;
  Codes codes = Codes::kNone;
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

// Matrices of packed weights, the same one over and over.
void FillPacked(const Setup& setup, const MatrixRef& packed, int64_t count) {
  MatrixRef rows = packed;
  rows.form = HeldForm::kRows;
  rows.row_bytes = RowBytes(packed.dtype, packed.cols);
  const Buffer stored = *Buffer::Allocate(rows.rows * rows.row_bytes, "rows to be packed");
  FillPool(stored, packed.dtype);
  rows.data = stored.data();
  const Packing packing{rows, setup.packed->data()};
  PackWeights(*setup.kernels, *setup.team, {&packing, 1});
  const int64_t bytes = PackedBytes(packed);
  for (int64_t i = 1; i < count; ++i) {
    std::memcpy(setup.packed->data() + i * bytes, setup.packed->data(), test::At(bytes));
  }
}

class ColdMatmul {
 public:
  ColdMatmul(const Setup& setup, const MatmulShape& shape)
      : setup_(setup),
        pool_(shape.packed ? *setup.packed : *setup.pool),
        run_(*setup.kernels, *setup.team) {
    weight_ = {.dtype = shape.dtype,
               .rows = shape.rows,
               .cols = shape.cols,
               .row_bytes = RowBytes(shape.dtype, shape.cols),
               .compute = Compute::kBf16};
    if (shape.codes != Codes::kNone) AddScales(shape.codes);
    if (shape.packed) weight_ = PackedShapeOf(*setup.kernels, weight_);
    matrix_bytes_ = shape.packed ? PackedBytes(weight_) : shape.rows * weight_.row_bytes;
    count_ = pool_.size() / matrix_bytes_;
    TN_CHECK(count_ > 0, "the pool holds at least one matrix");
    if (shape.packed) {
      FillPacked(setup, weight_, count_);
    } else {
      FillPool(pool_, shape.dtype);
    }
    weight_.data = pool_.data();
    Matmul(run_.tape(), {&weight_, 1}, run_.Input({shape.tokens, shape.cols}));
    run_.Seal();
  }

  const char* kernel() { return run_.KernelOf("matmul"); }
  int64_t count() const { return count_; }
  double matrix_bytes() const { return static_cast<double>(matrix_bytes_); }

  // The product with the next `n` matrices; the tape reads the matrix's address when it runs.
  void Multiply(int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      weight_.data = pool_.data() + next_ * matrix_bytes_;
      next_ = (next_ + 1) % count_;
      run_.Run();
    }
  }
  // One grid for all matrices: beside the codes it is little.
  void AddScales(Codes codes) {
    weight_.scales.rows = codes == Codes::kBlocks ? 128 : 1;
    weight_.scales.cols = codes == Codes::kBlocks ? 128 : weight_.cols;
    weight_.scales.stride = CeilDiv(weight_.cols, weight_.scales.cols);
    scales_ = test::Floats(CeilDiv(weight_.rows, weight_.scales.rows) * weight_.scales.stride, 1);
    weight_.scales.data = scales_.data();
    if (codes == Codes::kInt8Inputs) weight_.input = InputRounding::kInt8PerToken;
  }
  double SecondsToReadAll() const {
    double seconds = 0;
    for (int64_t i = 0; i < count_; ++i) {
      seconds += SecondsToRead(*setup_.kernels, *setup_.team, pool_.data() + i * matrix_bytes_,
                               matrix_bytes_);
    }
    return seconds;
  }

 private:
  const Setup& setup_;
  const Buffer& pool_;
  TapeRun run_;
  MatrixRef weight_;
  std::vector<float> scales_;
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
       fmt::format("{}{}{} K{} N{} M{}", NameOf(shape.dtype), shape.packed ? " packed" : "",
                   SuffixOf(shape.codes), shape.cols, shape.rows, shape.tokens),
       [shape, whole_pool](const Setup& setup) { return MakeCase(setup, shape, whole_pool); },
       [shape](const KernelTable& kernels) {
         return !shape.packed || CanPack(kernels, shape.dtype);
       }});
}

// Weights stored as codes, with bf16 rows beside them in each group.
void AddCodes(std::vector<CaseSpec>& cases) {
  struct Kind {
    DType dtype;
    Codes codes;
  };
  constexpr Kind kKinds[] = {{DType::kF8E4M3, Codes::kBlocks},
                             {DType::kF8E4M3, Codes::kChannels},
                             {DType::kI8, Codes::kChannels},
                             {DType::kI8, Codes::kInt8Inputs}};
  for (const Kind& kind : kKinds) {
    Add(cases, "gemv", {kind.dtype, 2048, 8192, 1, false, kind.codes});
    Add(cases, "gemv", {kind.dtype, 4096, 4096, 1, false, kind.codes});
    for (const int64_t tokens : {2, 4, 8, 16, 32}) {
      Add(cases, "narrow", {kind.dtype, 2048, 8192, tokens, false, kind.codes});
    }
    for (const int64_t tokens : {32, 128, 512}) {
      Add(cases, "gemm", {kind.dtype, 2048, 8192, tokens, false, kind.codes});
      Add(cases, "gemm", {kind.dtype, 4096, 4096, tokens, false, kind.codes});
    }
  }
}

}  // namespace

void AddMatmulCases(std::vector<CaseSpec>& cases) {
  constexpr DType kPacked[] = {DType::kBF16, DType::kQ8_0, DType::kQ4_0, DType::kQ4_1,
                               DType::kQ4_K};
  for (const DType dtype : {DType::kBF16, DType::kF32, DType::kQ8_0, DType::kQ4_0, DType::kQ4_1,
                            DType::kQ4_K, DType::kQ6_K}) {
    Add(cases, "gemv", {dtype, 2048, 8192});
    Add(cases, "gemv", {dtype, 4096, 4096});
  }
  for (const DType dtype : kPacked) {
    Add(cases, "gemv", {dtype, 2048, 8192, 1, true});
    Add(cases, "gemv", {dtype, 4096, 4096, 1, true});
    for (const int64_t tokens : {1, 2, 4, 8, 16, 32}) {
      Add(cases, "narrow", {dtype, 2048, 8192, tokens});
      Add(cases, "narrow", {dtype, 2048, 8192, tokens, true});
    }
  }
  AddCodes(cases);
  for (const int64_t tokens : {32, 128, 512}) {
    Add(cases, "gemm", {DType::kBF16, 2048, 2048, tokens});
    Add(cases, "gemm", {DType::kBF16, 2048, 8192, tokens});
    Add(cases, "gemm", {DType::kBF16, 4096, 4096, tokens});
    Add(cases, "gemm", {DType::kBF16, 2048, 8192, tokens, true});
    Add(cases, "gemm", {DType::kBF16, 4096, 4096, tokens, true});
  }
}

}  // namespace tenon::bench
