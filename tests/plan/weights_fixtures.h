// Directories with weights that something is the matter with, by the names of their list. Written
// anew from the goldens, so that the repository keeps no second copy of weights. One thread.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "plan/edited.h"
#include "plan/quantised.h"

namespace tenon::test {

inline constexpr const char* kWeightsIndex = "model.safetensors.index.json";

// Only what a download of the model holds, not the reference's answers beside it.
inline void CopyModel(const std::string& golden, const TempDir& to) {
  for (const auto& entry : std::filesystem::directory_iterator(DataPath("goldens/" + golden))) {
    const std::string name = entry.path().filename();
    if (name.starts_with("golden.")) continue;
    std::filesystem::copy(entry.path(), to / name);
  }
}

inline void WriteIndex(const TempDir& to, const std::map<std::string, std::string>& shard_of) {
  Json map{Json::Object{}};
  for (const auto& [tensor, shard] : shard_of) map.Set(tensor, shard);
  Json index;
  index.Set("weight_map", std::move(map));
  to.Write(kWeightsIndex, index.Dump());
}

// model.norm.weight is in both shards; the index has it in the first.
inline void WriteDuplicate(const TempDir& to) {
  const auto source = OpenOrDie(DataPath("goldens/llama"));
  to.Write("config.json", source->config()->Dump());
  std::vector<OutputTensor> first;
  std::vector<OutputTensor> second;
  std::map<std::string, std::string> shard_of;
  for (const StoredTensor& tensor : source->tensors()) {
    const std::string name(tensor.name);
    const bool head = name == "lm_head.weight";
    const OutputTensor out = OutputTensor::Of(name, *source->MapTensor(tensor));
    if (!head) first.push_back(out);
    if (head || name == "model.norm.weight") second.push_back(out);
    shard_of[name] = head ? "two.safetensors" : "one.safetensors";
  }
  TN_CHECK(WriteSafetensors(to / "one.safetensors", first).ok(), "the first shard");
  TN_CHECK(WriteSafetensors(to / "two.safetensors", second).ok(), "the second shard");
  WriteIndex(to, shard_of);
}

class WeightsFixture {
 public:
  // Aborts for a name that is not in the list.
  explicit WeightsFixture(const std::string& name) : model_("llama") {
    const std::map<std::string, std::function<void()>> recipes = {
        {"tied_with_lm_head", [&] { Edited().Set("tie_word_embeddings", true); }},
        {"untied_without_lm_head", [&] { Edited().Drop("lm_head.weight"); }},
        {"wrong_shape",
         [&] {
           const char* const k_proj = "model.layers.1.self_attn.k_proj.weight";
           Edited().Drop(k_proj).Add(k_proj, {48, 64});
         }},
        {"bias_unused", [&] { Edited().Add("model.layers.0.self_attn.q_proj.bias", {64}); }},
        {"missing_shard",
         [&] {
           CopyModel("llama_tied_fp32_sharded", dir_);
           std::filesystem::remove(dir_ / "model-00002-of-00004.safetensors");
         }},
        {"stray_consolidated",
         [&] {
           CopyModel("llama", dir_);
           std::filesystem::copy(dir_ / "model.safetensors", dir_ / "consolidated.safetensors");
         }},
        // Of a download before the weights were joined: its shards are gone.
        {"stale_index",
         [&] {
           CopyModel("llama", dir_);
           WriteIndex(dir_, {{"model.norm.weight", "model-00001-of-00002.safetensors"},
                             {"lm_head.weight", "model-00002-of-00002.safetensors"}});
         }},
        {"stale_index_of_shards",
         [&] {
           CopyModel("llama_tied_fp32_sharded", dir_);
           const std::string path = dir_ / kWeightsIndex;
           Json index = *ReadJsonFile(path);
           Json map = *index.Find("weight_map");
           map.Set("model.layers.7.mlp.up_proj.weight", "model-00001-of-00004.safetensors");
           index.Set("weight_map", std::move(map));
           dir_.Write(kWeightsIndex, index.Dump());
         }},
        {"quantised_missing_scale",
         [&] {
           quantised_ = std::make_unique<QuantisedModel>("llama", [](std::string_view tensor) {
             return IsProjection(tensor) ? Coded::kFp8Blocks : Coded::kNo;
           });
           quantised_->Drop("model.layers.1.mlp.up_proj.weight_scale_inv");
         }},
        {"duplicate_tensor", [&] { WriteDuplicate(dir_); }},
        {"truncated_safetensors",
         [&] {
           CopyModel("llama", dir_);
           const std::string path = dir_ / "model.safetensors";
           std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
         }},
        {"header_overflow",
         [&] {
           CopyModel("llama", dir_);
           dir_.Write("model.safetensors", Raw(~uint64_t{0}) + "{}");
         }},
    };
    const auto recipe = recipes.find(name);
    TN_CHECK(recipe != recipes.end(), name.c_str());
    recipe->second();
  }

  std::string path() {
    if (quantised_ != nullptr) {
      return quantised_->path(
          SettingsOf(R"({"quant_method": "fp8", "weight_block_size": [128, 128]})"));
    }
    return edited_ ? model_.path() : dir_.path();
  }

 private:
  EditedModel& Edited() {
    edited_ = true;
    return model_;
  }

  EditedModel model_;
  bool edited_ = false;
  std::unique_ptr<QuantisedModel> quantised_;
  TempDir dir_;
};

}  // namespace tenon::test
