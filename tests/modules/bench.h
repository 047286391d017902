// What the tests of this folder share: a checkpoint of made-up tensors with the context that
// modules are built from, a recording to run them in, and plain arithmetic in double to hold them
// against. Not for models. One thread.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "checkpoint/fixtures.h"
#include "ops/packed_matrices.h"
#include "support/words.h"
#include "tenon/checkpoint/writers.h"
#include "tenon/modules/forward.h"
#include "tenon/modules/module.h"

namespace tenon::test {

class ModuleBench {
 public:
  // A tensor of the checkpoint with random content; the same for the same name.
  void Put(const std::string& name, const Shape& shape, DType dtype = DType::kF32) {
    const auto seed = static_cast<uint32_t>(Fnv(std::as_bytes(std::span(name))));
    const int64_t width = shape.rank() == 0 ? 1 : shape.dim(-1);
    const auto [it, is_new] =
        stored_.emplace(name, RandomWeights(dtype, shape.rows(), width, seed));
    EXPECT_TRUE(is_new) << name;
    tensors_.push_back(OutputTensor::Of(
        name, TensorView(dtype, shape, const_cast<std::byte*>(it->second.data()))));
  }
  // The same with given bytes.
  void PutBytes(const std::string& name, const Shape& shape, DType dtype,
                std::vector<std::byte> bytes) {
    std::vector<std::byte>& kept = bytes_.emplace_back(std::move(bytes));
    tensors_.push_back(OutputTensor::Of(name, TensorView(dtype, shape, kept.data())));
  }
  // The tensor's numbers, row by row.
  const std::vector<float>& Of(const std::string& name) const { return stored_.at(name).decoded; }

  // Writes what was put, as safetensors or as GGUF, and indexes it.
  LoadContext& Open(Container container = Container::kHuggingFace) {
    const bool gguf = container == Container::kGguf;
    const std::string path = directory_ / (gguf ? "model.gguf" : "model.safetensors");
    const Status written =
        gguf ? WriteGguf(path, GgufBuilder().SetString("general.architecture", "x"), tensors_)
             : WriteSafetensors(path, tensors_);
    TN_CHECK(written.ok(), written.message().c_str());
    return OpenFile(path);
  }
  LoadContext& OpenFile(const std::string& path) {
    checkpoint_ = OpenOrDie(path);
    auto index = TensorIndex::Build(*checkpoint_, names_);
    TN_CHECK(index.ok(), index.message().c_str());
    index_ = std::make_unique<TensorIndex>(*std::move(index));
    context_.index = index_.get();
    return context_;
  }
  LoadedTensor LoadTensor(const std::string& name) const {
    Result<LoadedTensor> tensor = tenon::LoadTensor(*checkpoint_, *index_->Find(name));
    TN_CHECK(tensor.ok(), tensor.message().c_str());
    return *std::move(tensor);
  }
  Scope At(const std::string& path) { return {context_, path}; }
  LoadContext& context() { return context_; }
  const TensorIndex& index() const { return *index_; }

  // The family's names; before Open.
  NameTable& names() { return names_; }

  // The phases.
  Status Create() {
    for (Module* module : context_.modules) module->CreateWeights(context_);
    return context_.Errors();
  }
  void Load() {
    const Status status = Create();
    ASSERT_TRUE(status.ok()) << status.message();
    for (Module* module : context_.modules) {
      for (Parameter& parameter : module->parameters()) {
        const Status loaded = parameter.Load(*checkpoint_);
        ASSERT_TRUE(loaded.ok()) << loaded.message();
      }
    }
    Pack();
    for (Module* module : context_.modules) {
      const Status decoded = module->DecodeWeights();
      ASSERT_TRUE(decoded.ok()) << decoded.message();
    }
    for (Module* module : context_.modules) module->LinkWeights();
  }

 private:
  void Pack() {
    for (Module* module : context_.modules) {
      for (Parameter& parameter : module->parameters()) {
        if (parameter.held_form() == HeldForm::kRows) continue;
        parameter.SetPacked(packed_.Of(RowsOf(parameter)).data);
      }
    }
  }

  TempDir directory_;
  std::map<std::string, Weights> stored_;  // addresses are stable
  std::deque<std::vector<std::byte>> bytes_;
  std::vector<OutputTensor> tensors_;
  std::unique_ptr<Checkpoint> checkpoint_;
  std::unique_ptr<TensorIndex> index_;
  PackedMatrices packed_;
  NameTable names_;
  LoadContext context_;
};

class NoPlans final : public PlanSet {
 public:
  const StepPlan* Find(const AttentionBackend& /*backend*/, int /*group*/) override {
    return nullptr;
  }
};

// A step of `num_tokens` rows without attention.
struct Recording {
  explicit Recording(int64_t num_tokens) : pass(runner.tape(), layout, plans) {
    layout.num_tokens = num_tokens;
    layout.num_logit_rows = num_tokens;
  }
  OpRunner runner;
  StepLayout layout;
  NoPlans plans;
  Forward pass;

  Value Input(const std::vector<float>& data) {
    const auto width = static_cast<int64_t>(data.size()) / layout.num_tokens;
    return runner.Input(Shape{layout.num_tokens, width}, data);
  }
  std::vector<float> Run(const Value& value) { return runner.Run({value})[0]; }
};

// matrix [rows, x.size()] times x, plus bias [rows] unless it is empty.
inline std::vector<double> Times(const std::vector<float>& matrix, const std::vector<double>& x,
                                 const std::vector<float>& bias = {}) {
  std::vector<double> y(matrix.size() / x.size());
  for (size_t r = 0; r < y.size(); ++r) {
    y[r] = bias.empty() ? 0 : D(bias[r]);
    for (size_t c = 0; c < x.size(); ++c) y[r] += D(matrix[r * x.size() + c]) * x[c];
  }
  return y;
}

// Row t of data [.., width].
inline std::vector<double> RowOf(const std::vector<float>& data, size_t t, size_t width) {
  const auto begin = data.begin() + static_cast<std::ptrdiff_t>(t * width);
  return {begin, begin + static_cast<std::ptrdiff_t>(width)};
}

inline double Silu(double x) { return x / (1 + std::exp(-x)); }

// Element for element, relative to 1 + |expected|.
inline void ExpectNear(const std::vector<float>& got, const std::vector<double>& expected,
                       double tolerance = 2e-5) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(D(got[i]), expected[i], tolerance * (1 + std::abs(expected[i]))) << "at " << i;
  }
}

}  // namespace tenon::test
