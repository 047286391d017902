#include "tenon/checkpoint/checkpoint.h"

#include <fmt/format.h>

#include "tenon/checkpoint/file_kind.h"
#include "tenon/checkpoint/gguf_reader.h"
#include "tenon/checkpoint/gguf_set.h"
#include "tenon/checkpoint/hf_directory.h"
#include "tenon/checkpoint/safetensors.h"

namespace tenon {
namespace {

Result<std::shared_ptr<const MappedFile>> MapWeights(const std::string& path) {
  // Cut-off downloads into a cache leave links to nothing.
  if (!FileExists(path)) {
    return Refused(path + ": is missing or a link to nothing; fix: download it again");
  }
  return MappedFile::Open(path);
}

// Inside the directory, whatever the name says.
bool IsPlainRelative(std::string_view name) {
  if (name.empty() || name.front() == '/' || name.find('\0') != std::string_view::npos)
    return false;
  for (const std::string_view part : Split(name, '/')) {
    if (part.empty() || part == "." || part == "..") return false;
  }
  return true;
}

}  // namespace

std::string_view NameOf(Container container) {
  return container == Container::kGguf ? "GGUF" : "Hugging Face";
}

Result<std::unique_ptr<Checkpoint>> Checkpoint::Open(const std::string& path, OpenFor purpose) {
  if (path.empty()) return UsageError("the model's path is empty, allowed: a directory or a file");
  if (!FileExists(path)) return NotFound(path + ": no such file or directory");
  if (IsDirectory(path)) {
    std::unique_ptr<Checkpoint> checkpoint(new Checkpoint);
    checkpoint->path_ = path;
    checkpoint->directory_ = path;
    TN_RETURN_IF_ERROR(checkpoint->OpenDirectory(purpose));
    return checkpoint;
  }
  if (!IsRegularFile(path)) {
    return UsageError(path +
                      ": a device or pipe, allowed: a directory, a .gguf or .safetensors file");
  }
  TN_ASSIGN_OR_RETURN(std::shared_ptr<const MappedFile> file, MappedFile::Open(path));
  return Open(std::move(file), purpose);
}

Result<std::unique_ptr<Checkpoint>> Checkpoint::Open(std::shared_ptr<const MappedFile> file,
                                                     OpenFor purpose) {
  std::unique_ptr<Checkpoint> checkpoint(new Checkpoint);
  checkpoint->path_ = file->path();
  switch (SniffFile(file->bytes())) {
    case FileKind::kGguf:
      TN_RETURN_IF_ERROR(checkpoint->OpenGguf(std::move(file), purpose));
      return checkpoint;
    case FileKind::kSafetensors:
      TN_RETURN_IF_ERROR(checkpoint->AddSafetensors(std::move(file)));
      TN_RETURN_IF_ERROR(checkpoint->IndexTensors());
      return checkpoint;
    default:
      return WrongFile(file->path(), file->bytes(), "a GGUF or safetensors file");
  }
}

const StoredTensor* Checkpoint::FindTensor(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[static_cast<size_t>(found->second)];
}

Result<TensorView> Checkpoint::MapTensor(const StoredTensor& tensor) const {
  TN_RETURN_IF_ERROR(CheckTypeSupported(tensor),
                     fmt::format("{}: tensor {}", path_, QuotedName(tensor.name)));
  const MappedFile& file = *files_[static_cast<size_t>(tensor.file)];
  // Views are for both directions; this memory is mapped read-only and nobody may write it.
  auto* data = const_cast<std::byte*>(file.bytes().data()) + tensor.offset;
  return TensorView(tensor.dtype, tensor.shape, data);
}

bool Checkpoint::HasFile(std::string_view name) const {
  if (directory_.empty() || !IsPlainRelative(name)) return false;
  const std::string path = fmt::format("{}/{}", directory_, name);
  return FileExists(path) && !IsDirectory(path);
}

Result<std::string> Checkpoint::ReadSideFile(std::string_view name) const {
  if (!HasFile(name)) {
    return NotFound(fmt::format("{}: has no file {}", path_, QuotedName(name)));
  }
  const std::string path = fmt::format("{}/{}", directory_, name);
  TN_ASSIGN_OR_RETURN(std::string text, ReadFile(path));
  TN_RETURN_IF_ERROR(CheckTextFile(path, text));
  return text;
}

Result<std::optional<Json>> Checkpoint::ReadConfig(std::string_view name) const {
  if (!HasFile(name)) return std::optional<Json>();
  TN_ASSIGN_OR_RETURN(const std::string text, ReadSideFile(name));
  const std::string path = fmt::format("{}/{}", directory_, name);
  TN_ASSIGN_OR_RETURN(Json json, ParseJson(text), path);
  if (!json.is_object()) {
    return Refused(fmt::format("{}: is {}, expected an object", path, json.KindName()));
  }
  return std::optional<Json>(std::move(json));
}

Status Checkpoint::OpenDirectory(OpenFor purpose) {
  TN_RETURN_IF_ERROR(CheckHfDirectory(path_));
  TN_ASSIGN_OR_RETURN(config_, ReadConfig("config.json"));
  TN_ASSIGN_OR_RETURN(generation_config_, ReadConfig("generation_config.json"));
  if (purpose == OpenFor::kParts) return {};
  TN_ASSIGN_OR_RETURN(HfWeights weights, FindHfWeights(path_));
  notes_ = std::move(weights.notes);
  for (const std::string& name : weights.files) {
    TN_ASSIGN_OR_RETURN(auto file, MapWeights(path_ + "/" + name));
    TN_RETURN_IF_ERROR(AddSafetensors(std::move(file)));
  }
  TN_RETURN_IF_ERROR(IndexTensors());
  return CheckIndex(weights.shard_of);
}

Status Checkpoint::AddSafetensors(std::shared_ptr<const MappedFile> file) {
  const int index = static_cast<int>(files_.size());
  TN_RETURN_IF_ERROR(ReadSafetensorsHeader(*file, index, names_, tensors_));
  files_.push_back(std::move(file));
  return {};
}

Status Checkpoint::IndexTensors() {
  by_name_.reserve(tensors_.size());
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const auto [other, is_new] = by_name_.emplace(tensors_[i].name, static_cast<int>(i));
    if (is_new) continue;
    const std::string& here = files_[static_cast<size_t>(tensors_[i].file)]->path();
    const int other_file = tensors_[static_cast<size_t>(other->second)].file;
    if (other_file == tensors_[i].file) {
      return Refused(
          fmt::format("{}: tensor {} occurs twice; the file is damaged; fix: download it "
                      "again",
                      here, QuotedName(tensors_[i].name)));
    }
    return Refused(fmt::format(
        "{}: tensor {} is also in {}; fix: remove the file that does not "
        "belong to this model",
        here, QuotedName(tensors_[i].name), files_[static_cast<size_t>(other_file)]->path()));
  }
  return {};
}

Status Checkpoint::CheckIndex(const std::unordered_map<std::string, int>& shard_of) const {
  for (const auto& [name, file] : shard_of) {
    const StoredTensor* tensor = FindTensor(name);
    if (tensor != nullptr && tensor->file == file) continue;
    return Refused(fmt::format(
        "{}: tensor {}, which model.safetensors.index.json lists here, is {}; fix: download the "
        "index and the shards again",
        files_[static_cast<size_t>(file)]->path(), QuotedName(name),
        tensor == nullptr ? "absent" : "in " + files_[static_cast<size_t>(tensor->file)]->path()));
  }
  return {};
}

Result<GgufMetadata> Checkpoint::AddGgufPart(std::shared_ptr<const MappedFile> file) {
  TN_ASSIGN_OR_RETURN(GgufFile part, ReadGgufHeader(*file, static_cast<int>(files_.size())));
  files_.push_back(std::move(file));
  tensors_.insert(tensors_.end(), part.tensors.begin(), part.tensors.end());
  return std::move(part.metadata);
}

Status Checkpoint::OpenGguf(std::shared_ptr<const MappedFile> file, OpenFor purpose) {
  container_ = Container::kGguf;
  TN_ASSIGN_OR_RETURN(gguf_, AddGgufPart(std::move(file)));
  if (purpose == OpenFor::kModel) {
    TN_RETURN_IF_ERROR(CheckGgufIsModel(*gguf_, path_));
    TN_ASSIGN_OR_RETURN(const std::vector<std::string> parts, GgufPartPaths(*gguf_, path_));
    if (!parts.empty()) return OpenGgufParts(parts);
  }
  return IndexTensors();
}

// Starts again from the first part, whichever was given.
Status Checkpoint::OpenGgufParts(const std::vector<std::string>& paths) {
  const int count = static_cast<int>(paths.size());
  files_.clear();
  tensors_.clear();
  for (int i = 0; i < count; ++i) {
    const std::string& path = paths[static_cast<size_t>(i)];
    TN_ASSIGN_OR_RETURN(auto file, MapWeights(path));
    TN_ASSIGN_OR_RETURN(GgufMetadata metadata, AddGgufPart(std::move(file)));
    TN_RETURN_IF_ERROR(CheckGgufPart(metadata, path, i, count));
    if (i == 0) gguf_ = std::move(metadata);
  }
  TN_RETURN_IF_ERROR(CheckGgufTensorCount(*gguf_, path_, tensors_.size()));
  return IndexTensors();
}

}  // namespace tenon
