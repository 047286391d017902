// Checkpoint: what a model directory or a GGUF file holds, from headers alone: tensors by stored
// name, config.json or GGUF metadata, side files. No tensor data is read here and no name is
// interpreted (tensor_index.h). Immutable after Open; may be read from many threads.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tenon/base/file.h"
#include "tenon/base/json.h"
#include "tenon/base/status.h"
#include "tenon/checkpoint/gguf.h"
#include "tenon/checkpoint/stored_tensor.h"
#include "tenon/checkpoint/string_arena.h"
#include "tenon/tensor/tensor_view.h"

namespace tenon {

enum class Container { kHuggingFace, kGguf };
std::string_view NameOf(Container container);

enum class OpenFor {
  kModel,  // weights must be whole or absent altogether
  // Whatever is there: weight files of a directory are not looked at (tokenise, render); a GGUF
  // file may be one part of a set or an adapter (inspect).
  kParts,
};

class Checkpoint {
 public:
  // path: a Hugging Face directory, a .gguf file (any part of a split set) or a bare .safetensors
  // file (no config). Headers of all weight files are read and verified; file data is only mapped.
  // kNotFound: no such path. kRefused: damaged or incomplete, by its own kind, with the fix.
  static Result<std::unique_ptr<Checkpoint>> Open(const std::string& path,
                                                  OpenFor purpose = OpenFor::kModel);
  // The same for one file that is mapped already, or in memory.
  static Result<std::unique_ptr<Checkpoint>> Open(std::shared_ptr<const MappedFile> file,
                                                  OpenFor purpose = OpenFor::kModel);
  Checkpoint(const Checkpoint&) = delete;
  Checkpoint& operator=(const Checkpoint&) = delete;

  const std::string& path() const { return path_; }
  Container container() const { return container_; }
  // What was found and not used, in words ("not used: golden.safetensors"): for the ledger.
  std::span<const std::string> notes() const { return notes_; }

  // In the order of the files.
  std::span<const StoredTensor> tensors() const { return tensors_; }
  const StoredTensor* FindTensor(std::string_view name) const;
  // The bytes where the file holds them, at whatever alignment; read-only memory. kRefused when
  // the type is not supported.
  Result<TensorView> MapTensor(const StoredTensor& tensor) const;
  // The weight files; a mapping lives as long as anybody holds it.
  std::span<const std::shared_ptr<const MappedFile>> files() const { return files_; }

  // Parsed config.json and generation_config.json; null when absent (always in GGUF).
  const Json* config() const { return config_ ? &*config_ : nullptr; }
  const Json* generation_config() const {
    return generation_config_ ? &*generation_config_ : nullptr;
  }
  // Null unless container() is kGguf; of a split set, the first part's.
  const GgufMetadata* gguf() const { return gguf_ ? &*gguf_ : nullptr; }

  // Other files of the directory: "tokenizer.json", "additional_chat_templates/x.jinja". A GGUF
  // file and a bare .safetensors file have none. ReadSideFile: kNotFound when absent, kRefused when
  // empty or a Git LFS pointer.
  bool HasFile(std::string_view name) const;
  Result<std::string> ReadSideFile(std::string_view name) const;

 private:
  Checkpoint() = default;
  Status OpenDirectory(OpenFor purpose);
  Status OpenGguf(std::shared_ptr<const MappedFile> file, OpenFor purpose);
  Status OpenGgufParts(const std::vector<std::string>& paths);
  Result<GgufMetadata> AddGgufPart(std::shared_ptr<const MappedFile> file);
  Status AddSafetensors(std::shared_ptr<const MappedFile> file);
  Status IndexTensors();
  Status CheckIndex(const std::unordered_map<std::string, int>& shard_of) const;
  Result<std::optional<Json>> ReadConfig(std::string_view name) const;

  std::string path_;
  std::string directory_;  // of side files; empty: there are none
  Container container_ = Container::kHuggingFace;
  std::vector<std::string> notes_;
  std::vector<std::shared_ptr<const MappedFile>> files_;
  StringArena names_;
  std::vector<StoredTensor> tensors_;
  std::unordered_map<std::string_view, int> by_name_;
  std::optional<Json> config_;
  std::optional<Json> generation_config_;
  std::optional<GgufMetadata> gguf_;
};

}  // namespace tenon
