// A golden model with something wrong: its config.json edited, tensors left out or added. One
// thread.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/fixtures.h"
#include "tenon/base/json.h"
#include "tenon/checkpoint/writers.h"

namespace tenon::test {

class EditedModel {
 public:
  explicit EditedModel(const std::string& golden)
      : source_(OpenOrDie(DataPath("goldens/" + golden))), config_(*source_->config()) {}

  EditedModel& Set(std::string_view key, Json value) {
    config_.Set(key, std::move(value));
    return *this;
  }
  EditedModel& Unset(std::string_view key) {
    std::erase_if(config_.as_object(), [&](const Json::Member& m) { return m.first == key; });
    return *this;
  }
  EditedModel& Drop(std::string name) {
    dropped_.push_back(std::move(name));
    return *this;
  }
  // Of zeros.
  EditedModel& Add(std::string name, Shape shape) {
    added_.emplace_back(std::move(name), shape);
    return *this;
  }
  const Json& config() const { return config_; }
  EditedModel& WithoutWeights() {
    has_weights_ = false;
    return *this;
  }

  // Written anew by each call.
  std::string path() {
    directory_.Write("config.json", config_.Dump(2));
    if (has_weights_) WriteWeights();
    return directory_.path();
  }

 private:
  void WriteWeights() {
    std::vector<OutputTensor> tensors;
    for (const StoredTensor& tensor : source_->tensors()) {
      const std::string name(tensor.name);
      if (std::find(dropped_.begin(), dropped_.end(), name) != dropped_.end()) continue;
      tensors.push_back(OutputTensor::Of(name, *source_->MapTensor(tensor)));
    }
    std::vector<std::vector<float>> zeros;
    zeros.reserve(added_.size());
    for (const auto& [name, shape] : added_) {
      std::vector<float>& data = zeros.emplace_back(static_cast<size_t>(shape.elements()));
      tensors.push_back(OutputTensor::Of(
          name, TensorView(DType::kF32, shape, reinterpret_cast<std::byte*>(data.data()))));
    }
    const Status status = WriteSafetensors(directory_ / "model.safetensors", tensors);
    TN_CHECK(status.ok(), status.message().c_str());
  }

  std::unique_ptr<Checkpoint> source_;
  Json config_;
  std::vector<std::string> dropped_;
  std::vector<std::pair<std::string, Shape>> added_;
  bool has_weights_ = true;
  TempDir directory_;
};

}  // namespace tenon::test
