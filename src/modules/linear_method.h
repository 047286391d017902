// LinearMethod: how one kind of scheme declares the parameters of a weight matrix and shows them to
// products. Not the products themselves (ops/matmul.h), not which matrix has which scheme
// (quantise.h). Methods have no state of their own: thread-safe.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tenon/config/quant_scheme.h"
#include "tenon/modules/module.h"

namespace tenon {

// What is not quantised: any float as it is stored.
const QuantScheme& PlainScheme();

class LinearMethod;

// One weight matrix of a module: its place and size, then its parameters.
struct WeightMatrix {
  std::string path;  // "model.layers.0.mlp.up_proj"
  int64_t rows = 0;
  int64_t cols = 0;
  Share row_share = {};  // of the stored tensor; rows and cols are this rank's
  Share col_share = {};
  Parameter::Form form = Parameter::Form::kProduct;
  const QuantScheme* scheme = &PlainScheme();  // outlives the module

  // Left by CreateWeight.
  const LinearMethod* method = nullptr;
  const Parameter* weight = nullptr;
  const Parameter* scales = nullptr;  // as the method reads them; null: it has none
  Buffer decoded = {};                // of methods that decode, once that is done
};

class LinearMethod {
 public:
  virtual ~LinearMethod() = default;
  // Adds the parameters to the module that owns the matrix and leaves them in it; errors go to the
  // context.
  virtual void Declare(LoadContext& context, Module& owner, WeightMatrix& matrix) const = 0;
  // As products read it; without addresses until the parameters are loaded. After Declare.
  virtual MatrixRef Matrix(const WeightMatrix& matrix) const = 0;

  // For weights that no product reads as they are stored. Bytes that the method makes of the loaded
  // parameters, known before loading; then those bytes, 64-byte aligned, which Matrix shows from
  // then on (WeightMatrix::decoded).
  virtual int64_t DecodedBytes(const WeightMatrix& /*matrix*/) const { return 0; }
  virtual Status Decode(const WeightMatrix& /*matrix*/, std::span<std::byte> /*out*/) const {
    return {};
  }
};

// Methods by the name that a scheme says. To add one: a class, its name here.
class LinearMethodTable {
 public:
  static LinearMethodTable Builtin();  // plain, gguf, fp8, int8, mxfp4
  // A later one of a name counts.
  void Add(std::string name, std::shared_ptr<const LinearMethod> method);
  const LinearMethod* Find(const std::string& name) const;
  std::vector<std::string> Names() const;

 private:
  std::map<std::string, std::shared_ptr<const LinearMethod>> methods_;
};

// Declares the matrix by the method of its scheme; plain ones stored in blocks are GGUF's. False:
// there is no such method, and the context has the error.
bool CreateWeight(LoadContext& context, Module& owner, WeightMatrix& matrix);
int64_t DecodedBytes(const WeightMatrix& matrix);
// After loading, before the matrix is shown to anybody.
Status DecodeWeight(WeightMatrix& matrix);
// By its method; of one that could not be created the size alone.
MatrixRef MatrixOf(const WeightMatrix& matrix);

}  // namespace tenon
