// Linear: one or several weight matrices that share an input (fused q/k/v, gate/up), as ordered
// segments: each may be stored in another format, and quantisation keys, adapters and tensor
// parallelism address them one by one. Not thread-safe while recording.
#pragma once

#include "tenon/modules/forward.h"
#include "tenon/modules/linear_method.h"

namespace tenon {

// One checkpoint tensor inside a linear layer.
struct Segment {
  std::string name;  // "k_proj": the last part of its path
  int64_t rows = 0;
  bool has_bias = false;
  int64_t units = 0;  // heads: rows of one stay together where rows are shared out; 0: rows alone
};

// What each rank of a tensor-parallel world has of a linear layer.
enum class LinearShare {
  kWhole,
  kRows,     // its rows: the input is whole, the result its own ("column parallel" elsewhere)
  kColumns,  // its columns: the input is its own, results are summed up ("row parallel"); the bias
             // counts on the first rank
};
struct LinearDivision {
  LinearDivision(LinearShare how) : share(how) {}  // NOLINT(google-explicit-constructor)
  LinearDivision(LinearShare how, const ParallelMapping* others) : share(how), among(others) {}
  LinearShare share;
  const ParallelMapping* among = nullptr;  // null: the world of the context
};

class Linear : public Module {
 public:
  // One matrix under the scope's own name.
  Linear(const Scope& scope, int64_t in, int64_t out, bool has_bias = false,
         const LinearDivision& division = LinearShare::kWhole);
  // Several matrices, children of `parent`.
  Linear(const Scope& parent, std::string_view fused_name, int64_t in,
         std::vector<Segment> segments, const LinearDivision& division = LinearShare::kWhole);

  // Activations stay fp32 whatever the options say: routers, whose small differences decide. Before
  // CreateWeights.
  void KeepExact() { exact_ = true; }
  // Others than products read the rows. Before CreateWeights.
  void KeepRows() { keeps_rows_ = true; }
  void Quantise(Quantiser& quantiser) override;
  void CreateWeights(LoadContext& context) override;
  Status DecodeWeights() override;
  void LinkWeights() override;
  int64_t derived_bytes() const override;

  // x [num_tokens, in] -> [num_tokens, sum of rows], fp32.
  Value operator()(Forward& pass, const Value& x) const {
    return Matmul(pass.tape(), matrices_, x);
  }
  // The columns of segment i in the result of operator().
  Value SegmentOf(const Value& result, size_t i) const;

  const std::vector<Segment>& segments() const { return segments_; }  // this rank's
  std::span<const MatrixRef> matrices() const { return matrices_; }
  int64_t in() const { return in_; }

 private:
  void Divide(const Scope& parent, const LinearDivision& division);
  // What products read of segment i: no addresses before loading.
  MatrixRef MatrixOfSegment(size_t i) const;

  int64_t in_;
  bool exact_ = false;
  bool keeps_rows_ = false;
  std::vector<Segment> segments_;
  std::vector<WeightMatrix> weights_;     // [segments]
  std::vector<const Parameter*> biases_;  // [segments]; null: none
  std::vector<MatrixRef> matrices_;  // [segments]; sized at construction, so addresses are stable
};

}  // namespace tenon
