#include "tenon/checkpoint/hf_directory.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <filesystem>

#include "tenon/base/file.h"
#include "tenon/base/json.h"
#include "tenon/base/text.h"
#include "tenon/checkpoint/file_kind.h"
#include "tenon/checkpoint/part_name.h"

namespace tenon {
namespace {

constexpr std::string_view kSingleFile = "model.safetensors";
constexpr std::string_view kIndexFile = "model.safetensors.index.json";
constexpr std::string_view kWeightExtension = ".safetensors";

// Any one of them makes a directory worth opening.
constexpr std::string_view kKnownFiles[] = {"config.json",         "generation_config.json",
                                            "tokenizer.json",      "tokenizer_config.json",
                                            "tokenizer.model",     "vocab.json",
                                            "merges.txt",          "vocab.txt",
                                            "added_tokens.json",   "special_tokens_map.json",
                                            "chat_template.jinja", "chat_template.json",
                                            "adapter_config.json"};

// Weights in forms that are not read here.
struct ForeignWeights {
  std::string_view start;
  std::string_view end;
  std::string_view what;
};
constexpr ForeignWeights kForeign[] = {
    {"pytorch_model", ".bin", "pickle"}, {"consolidated", ".pth", "pickle"},
    {"model", ".pt", "pickle"},          {"model", ".pth", "pickle"},
    {"model", ".ckpt", "pickle"},        {"pytorch_model", ".pt", "pickle"},
    {"tf_model", ".h5", "TensorFlow"},   {"flax_model", ".msgpack", "Flax"},
    {"model", ".onnx", "ONNX"}};

std::vector<std::string> FileNames(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator it(directory, error), end; !error && it != end;
       it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

bool Holds(const std::vector<std::string>& names, std::string_view name) {
  return std::binary_search(names.begin(), names.end(), name);
}

std::vector<std::string> EndingWith(const std::vector<std::string>& names, std::string_view end) {
  std::vector<std::string> found;
  std::copy_if(names.begin(), names.end(), std::back_inserter(found),
               [&](const std::string& name) { return name.ends_with(end); });
  return found;
}

bool IsAdapterWeight(const std::string& name) { return name.starts_with("adapter_model"); }

// "adapter_config.json names 'x'" when it does: the base that the adapter needs.
std::string BaseOfAdapter(const std::string& directory) {
  const Result<Json> config = ReadJsonFile(directory + "/adapter_config.json");
  if (!config.ok()) return "";
  const Json* base = config->Find("base_model_name_or_path");
  if (base == nullptr || !base->is_string()) return "";
  return fmt::format(" ({})", QuotedName(base->as_string()));
}

// Why a directory without safetensors weights of a model cannot be a model, if it cannot.
Status CheckOtherWeights(const std::string& directory, const std::vector<std::string>& names) {
  if (Holds(names, "adapter_config.json") ||
      std::any_of(names.begin(), names.end(), IsAdapterWeight)) {
    return Refused(fmt::format(
        "{}: holds an adapter without its base model; fix: open the base model{} instead",
        directory, BaseOfAdapter(directory)));
  }
  for (const std::string& name : names) {
    for (const ForeignWeights& foreign : kForeign) {
      if (!name.starts_with(foreign.start) || !name.ends_with(foreign.end)) continue;
      return Refused(fmt::format(
          "{}: holds only {} weights ({}), supported: safetensors, GGUF; fix: download the "
          "safetensors files, or convert (transformers: from_pretrained, then save_pretrained)",
          directory, foreign.what, name));
    }
  }
  const std::vector<std::string> gguf = EndingWith(names, ".gguf");
  if (!gguf.empty()) {
    return Refused(fmt::format("{}: holds GGUF files ({}); fix: give the path of one of them",
                               directory, SomeNames(gguf)));
  }
  return {};
}

Status MissingParts(const std::string& directory, const std::vector<std::string>& missing,
                    int count, std::string_view named_by) {
  return Refused(fmt::format("{}: {} of {} shards that {} are missing: {}; fix: download them",
                             directory, missing.size(), count, named_by, SomeNames(missing)));
}

// model-00001-of-00003.safetensors and its siblings, when the index is absent.
Result<HfWeights> NumberedShards(const std::string& directory,
                                 const std::vector<std::string>& names) {
  HfWeights weights;
  for (const std::string& name : EndingWith(names, kWeightExtension)) {
    PartName part;
    if (!ParsePartName(name, part) || part.stem != "model") continue;
    std::vector<std::string> missing;
    for (int i = 1; i <= part.count; ++i) {
      const std::string sibling = part.NameOf(i);
      (Holds(names, sibling) ? weights.files : missing).push_back(sibling);
    }
    if (!missing.empty()) {
      return MissingParts(directory, missing, part.count, "the names of the others ask for");
    }
    weights.notes.push_back(
        fmt::format("{} is absent: all {} numbered shards are used", kIndexFile, part.count));
    return weights;
  }
  return weights;
}

// "weight_map" of the index. Shard names are plain names: a path could leave the directory.
Status ReadIndex(const std::string& path, HfWeights& weights) {
  TN_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  TN_RETURN_IF_ERROR(CheckTextFile(path, text));
  simdjson::dom::parser parser;
  simdjson::dom::object root;
  simdjson::dom::object map;
  if (const auto error = parser.parse(simdjson::padded_string(text)).get(root)) {
    return Refused(fmt::format("{}: is not a JSON object ({}); fix: download it again", path,
                               simdjson::error_message(error)));
  }
  if (root["weight_map"].get(map)) {
    return Refused(path + ": has no object \"weight_map\"; fix: download it again");
  }
  std::unordered_map<std::string, int> position_of;
  for (const auto& [tensor, value] : map) {
    std::string_view shard;
    if (value.get(shard) || shard.empty() || shard.find('/') != std::string_view::npos ||
        shard == "." || shard == "..") {
      return Refused(fmt::format("{}: tensor {} is in {}, allowed: the name of a file beside it",
                                 path, QuotedName(tensor), QuotedName(simdjson::minify(value))));
    }
    const auto [position, is_new] =
        position_of.emplace(shard, static_cast<int>(weights.files.size()));
    if (is_new) weights.files.emplace_back(shard);
    if (!weights.shard_of.emplace(tensor, position->second).second) {
      return Refused(fmt::format("{}: tensor {} is listed twice; fix: download it again", path,
                                 QuotedName(tensor)));
    }
  }
  if (weights.files.empty()) {
    return Refused(path + ": \"weight_map\" names no tensor; fix: download it again");
  }
  return {};
}

Result<HfWeights> IndexedShards(const std::string& directory) {
  HfWeights weights;
  TN_RETURN_IF_ERROR(ReadIndex(fmt::format("{}/{}", directory, kIndexFile), weights));
  std::vector<std::string> missing;
  for (const std::string& file : weights.files) {
    if (!FileExists(fmt::format("{}/{}", directory, file))) missing.push_back(file);
  }
  if (missing.empty()) return weights;
  std::sort(missing.begin(), missing.end());
  return MissingParts(directory, missing, static_cast<int>(weights.files.size()),
                      fmt::format("{} names", kIndexFile));
}

// A whole model wins over an index that does not name it, as in transformers
// (modeling_utils.py, _get_resolved_checkpoint_files).
Result<HfWeights> SingleFile(const std::string& directory, bool has_index) {
  const std::string single(kSingleFile);
  if (has_index) {
    Result<HfWeights> indexed = IndexedShards(directory);
    if (indexed.ok() && std::count(indexed->files.begin(), indexed->files.end(), single) > 0) {
      return indexed;
    }
  }
  HfWeights weights;
  weights.files.push_back(single);
  if (has_index) {
    weights.notes.push_back(
        fmt::format("not used: {} (it does not name {})", kIndexFile, kSingleFile));
  }
  return weights;
}

}  // namespace

Status CheckHfDirectory(const std::string& directory) {
  const std::vector<std::string> names = FileNames(directory);
  for (const std::string_view known : kKnownFiles) {
    if (Holds(names, known)) return {};
  }
  if (Holds(names, kIndexFile) || !EndingWith(names, kWeightExtension).empty()) return {};
  // Weights of another kind say more than "nothing known".
  TN_RETURN_IF_ERROR(CheckOtherWeights(directory, names));
  const std::string found = names.empty() ? "is empty" : fmt::format("holds {}", SomeNames(names));
  const std::string_view fix =
      Holds(names, "snapshots")
          ? "give one of the directories inside its snapshots/"
          : "give a directory with config.json and model.safetensors, or a .gguf file";
  return Refused(fmt::format("{}: no model: the directory {}; fix: {}", directory, found, fix));
}

Result<HfWeights> FindHfWeights(const std::string& directory) {
  const std::vector<std::string> names = FileNames(directory);
  const bool has_index = Holds(names, kIndexFile);
  TN_ASSIGN_OR_RETURN(HfWeights weights, Holds(names, kSingleFile)
                                             ? SingleFile(directory, has_index)
                                         : has_index ? IndexedShards(directory)
                                                     : NumberedShards(directory, names));
  std::vector<std::string> others = EndingWith(names, kWeightExtension);
  std::erase_if(others, [&](const std::string& name) {
    return std::find(weights.files.begin(), weights.files.end(), name) != weights.files.end();
  });
  if (weights.files.empty()) {
    TN_RETURN_IF_ERROR(CheckOtherWeights(directory, names));
    if (!others.empty()) {
      return Refused(fmt::format(
          "{}: no {}, but {}; fix: rename the weights to {}, or give the path of that file",
          directory, kSingleFile, SomeNames(others), kSingleFile));
    }
  }
  if (!others.empty()) weights.notes.push_back("not used: " + SomeNames(others));
  return weights;
}

}  // namespace tenon
