// Embedding (token ids to rows) and LmHead (rows to logits, its own matrix or the embedding's). Not
// thread-safe while recording.
#pragma once

#include "tenon/modules/linear.h"

namespace tenon {

class Embedding : public Module {
 public:
  Embedding(const Scope& scope, int64_t rows, int64_t width);
  void CreateWeights(LoadContext& context) override;
  void LinkWeights() override;

  // ids [num_tokens] -> [num_tokens, width] fp32, times scale.
  Value operator()(Forward& pass, const int32_t* ids, float scale = 1.0f) const {
    return Embed(pass.tape(), table_, ids, pass.num_tokens(), scale);
  }
  const MatrixRef& table() const { return table_; }
  const Share& share() const { return share_; }  // of the vocabulary
  // The table as the matrix of a product too: a packed copy, where the options want that. After
  // CreateWeights.
  MatrixRef UseInProducts(const LoadContext& context);
  MatrixRef product() const { return MatrixOf(parameters_[0]); }  // after loading

 private:
  MatrixRef table_;
  Share share_;
};

// Rule (DESIGN section 5): present in the file -> its own parameter, whatever the config says;
// absent and tied -> the embedding's; absent and untied -> an error, but for a base model's
// checkpoint, whose result is the normed rows themselves. Quantised only by a key of its own, or by
// the scheme for all layers where the file has scales for it; never as the embedding's.
class LmHead : public Module {
 public:
  LmHead(const Scope& scope, Embedding& embedding, bool tied, bool has_bias = false);
  void Quantise(Quantiser& quantiser) override;
  void CreateWeights(LoadContext& context) override;
  Status DecodeWeights() override { return DecodeWeight(weight_); }
  void LinkWeights() override;
  int64_t derived_bytes() const override { return DecodedBytes(weight_); }

  // x [num_logit_rows, hidden] -> [num_logit_rows, vocab] fp32.
  Value operator()(Forward& pass, const Value& x) const {
    return absent_ ? x : Matmul(pass.tape(), {&matrix_, 1}, x);
  }

 private:
  // Its own matrix is there to be used.
  bool IsPresent(const LoadContext& context) const;

  Embedding& embedding_;
  bool tied_;
  bool has_bias_;
  bool shared_ = false;
  bool absent_ = false;
  bool created_ = false;
  WeightMatrix weight_;
  const Parameter* bias_ = nullptr;
  MatrixRef matrix_;
};

// The rows whose logits are wanted, of x [num_tokens, hidden]; x itself when it has no others.
Value LogitRows(Forward& pass, const Value& x);

}  // namespace tenon
