// A golden model twice: with matrices quantised here, by the formats' own formulas, and with the
// numbers that those codes stand for. One thread.
#pragma once

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/fixtures.h"
#include "tenon/base/json.h"
#include "tenon/checkpoint/writers.h"
#include "tenon/numeric/codecs.h"
#include "tenon/numeric/decode.h"

namespace tenon::test {

enum class Coded { kNo, kFp8Blocks, kFp8Rows, kInt8Rows };

class QuantisedModel {
 public:
  // format: of a tensor by its name.
  QuantisedModel(const std::string& golden,
                 const std::function<Coded(std::string_view name)>& format)
      : source_(OpenOrDie(DataPath("goldens/" + golden))) {
    for (const StoredTensor& tensor : source_->tensors()) {
      const std::string name(tensor.name);
      const Coded coded = format(name);
      if (coded == Coded::kNo) {
        codes_.push_back(OutputTensor::Of(name, *source_->MapTensor(tensor)));
        numbers_.push_back(codes_.back());
      } else {
        Quantise(tensor, coded);
      }
    }
  }

  // Bytes of codes and of fp32 scales.
  int64_t coded_bytes() const { return coded_bytes_; }
  void Drop(std::string name) { dropped_.insert(std::move(name)); }

  std::string path(const Json& settings, bool with_weights = true) {
    Json config = *source_->config();
    config.Set("quantization_config", settings);
    return Write(coded_, config, with_weights ? codes_ : std::vector<OutputTensor>());
  }
  std::string plain_path() { return Write(plain_, *source_->config(), numbers_); }

 private:
  struct Grid {
    int64_t rows, cols;
  };

  static std::byte NearestFp8(float x) {
    int best = 0;
    for (int code = 0; code < 256; ++code) {
      const float value = F8E4M3ToFloat(static_cast<uint8_t>(code));
      const float nearest = F8E4M3ToFloat(static_cast<uint8_t>(best));
      if (std::abs(value - x) < std::abs(nearest - x)) best = code;
    }
    return static_cast<std::byte>(best);
  }

  void Quantise(const StoredTensor& tensor, Coded coded) {
    const int64_t rows = tensor.shape.dim(0);
    const int64_t cols = tensor.shape.dim(1);
    const Grid grid = coded == Coded::kFp8Blocks ? Grid{128, 128} : Grid{1, cols};
    const int64_t across = (cols + grid.cols - 1) / grid.cols;
    std::vector<float>& numbers = floats_.emplace_back(static_cast<size_t>(rows * cols));
    DecoderOf(tensor.dtype)(source_->MapTensor(tensor)->data(), rows * cols, numbers.data());
    std::vector<float>& scales =
        floats_.emplace_back(static_cast<size_t>((rows + grid.rows - 1) / grid.rows * across));
    const auto scale_of = [&](int64_t i) -> float& {
      return scales[static_cast<size_t>(i / cols / grid.rows * across + i % cols / grid.cols)];
    };
    const float most = coded == Coded::kInt8Rows ? 127.0f : 448.0f;
    for (int64_t i = 0; i < rows * cols; ++i) {
      scale_of(i) = std::max(scale_of(i), std::abs(numbers[static_cast<size_t>(i)]) / most);
    }
    std::vector<std::byte>& codes = bytes_.emplace_back(numbers.size());
    for (int64_t i = 0; i < rows * cols; ++i) {
      const auto at = static_cast<size_t>(i);
      const float x = numbers[at] / scale_of(i);
      if (coded == Coded::kInt8Rows) {
        const auto code = static_cast<int8_t>(std::lround(x));
        codes[at] = static_cast<std::byte>(code);
        numbers[at] = static_cast<float>(code) * scale_of(i);
      } else {
        codes[at] = NearestFp8(x);
        numbers[at] = F8E4M3ToFloat(static_cast<uint8_t>(codes[at])) * scale_of(i);
      }
    }
    const std::string name(tensor.name);
    const DType dtype = coded == Coded::kInt8Rows ? DType::kI8 : DType::kF8E4M3;
    const auto scale_count = static_cast<int64_t>(scales.size());
    codes_.push_back(OutputTensor::Of(name, TensorView(dtype, tensor.shape, codes.data())));
    codes_.push_back(OutputTensor::Of(name + (coded == Coded::kFp8Blocks ? "_scale_inv" : "_scale"),
                                      TensorView(DType::kF32, {scale_count / across, across},
                                                 reinterpret_cast<std::byte*>(scales.data()))));
    numbers_.push_back(OutputTensor::Of(
        name, TensorView(DType::kF32, tensor.shape, reinterpret_cast<std::byte*>(numbers.data()))));
    coded_bytes_ += rows * cols + 4 * scale_count;
  }

  std::string Write(const TempDir& directory, const Json& config,
                    std::vector<OutputTensor> tensors) const {
    directory.Write("config.json", config.Dump(2));
    std::erase_if(tensors, [&](const OutputTensor& t) { return dropped_.contains(t.name); });
    if (!tensors.empty()) {
      const Status status = WriteSafetensors(directory / "model.safetensors", tensors);
      TN_CHECK(status.ok(), status.message().c_str());
    }
    return directory.path();
  }

  std::unique_ptr<Checkpoint> source_;
  std::deque<std::vector<float>> floats_;
  std::deque<std::vector<std::byte>> bytes_;
  std::vector<OutputTensor> codes_;
  std::vector<OutputTensor> numbers_;
  std::set<std::string> dropped_;
  int64_t coded_bytes_ = 0;
  TempDir coded_;
  TempDir plain_;
};

inline Json SettingsOf(std::string_view text) {
  Result<Json> json = ParseJson(text);
  TN_CHECK(json.ok(), json.message().c_str());
  return *std::move(json);
}

// The head and the projections of a block, by their names in the file.
inline bool IsProjection(std::string_view name) { return name.ends_with("_proj.weight"); }

}  // namespace tenon::test
