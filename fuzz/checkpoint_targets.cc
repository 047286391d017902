// Files of weights: one safetensors file, one GGUF file, the index of a directory, a split set.
#include "support.h"
#include "targets.h"

namespace tenon::fuzz {
namespace {

void OpenAndWalk(std::string name, std::string_view bytes, OpenFor purpose) {
  const auto file =
      MappedFile::Of(std::move(name), std::as_bytes(std::span(bytes.data(), bytes.size())));
  const auto opened = Checkpoint::Open(file, purpose);
  if (opened.ok()) return Walk(**opened);
  CheckError(opened.status());
}

// A header of one F32 tensor [1], and its byte of data.
std::string OneTensor(std::string_view name) {
  std::string header = R"({")";
  header.append(name).append(R"(":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})");
  const auto length = static_cast<char>(header.size());
  return std::string{length, 0, 0, 0, 0, 0, 0, 0} + header + "x";
}

}  // namespace

void FuzzSafetensors(std::string_view bytes) {
  OpenAndWalk("model.safetensors", bytes, OpenFor::kModel);
}

void FuzzGguf(std::string_view bytes) {
  OpenAndWalk("model.gguf", bytes, OpenFor::kParts);
  OpenAndWalk("set-00001-of-00002.gguf", bytes, OpenFor::kModel);
}

// The directory's own index over two files that are as they should be.
void FuzzHfIndex(std::string_view bytes) {
  static const ScratchFolder* const folder = [] {
    static const ScratchFolder made;
    made.Write("config.json", "{}");
    made.Write("model-00001-of-00002.safetensors", OneTensor("a"));
    made.Write("model-00002-of-00002.safetensors", OneTensor("b"));
    return &made;
  }();
  folder->Write("model.safetensors.index.json", bytes);
  const auto opened = Checkpoint::Open(folder->path());
  if (opened.ok()) return Walk(**opened);
  CheckError(opened.status());
}

// Each part of the input is a file of the set.
void FuzzGgufSet(std::string_view bytes) {
  static const ScratchFolder folder;
  constexpr size_t kMost = 4;
  const std::vector<std::string_view> parts = Parts(bytes);
  if (parts.size() > kMost) return;
  const auto name = [&](size_t part) {
    return "m-0000" + std::to_string(part + 1) + "-of-0000" + std::to_string(parts.size()) +
           ".gguf";
  };
  std::string last;
  for (size_t i = 0; i < parts.size(); ++i) last = folder.Write(name(i), parts[i]);
  const auto opened = Checkpoint::Open(last);
  if (opened.ok()) {
    Walk(**opened);
  } else {
    CheckError(opened.status());
  }
  for (size_t i = 0; i < parts.size(); ++i) folder.Remove(name(i));
}

}  // namespace tenon::fuzz
