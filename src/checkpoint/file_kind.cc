#include "tenon/checkpoint/file_kind.h"

#include <fmt/format.h>

#include <algorithm>

#include "tenon/base/json.h"
#include "tenon/base/text.h"

namespace tenon {
namespace {

// https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md: the pointer's first line.
constexpr std::string_view kLfsStart = "version https://git-lfs";

std::string_view TextOf(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// An 8-byte length, of which some byte is no text, and then a JSON object.
bool LooksLikeSafetensors(std::string_view text) {
  constexpr size_t kLengthBytes = 8;
  if (text.size() <= kLengthBytes || text[kLengthBytes] != '{') return false;
  const std::string_view length = text.substr(0, kLengthBytes);
  return std::any_of(length.begin(), length.end(), [](char c) { return c < ' ' || c == '\x7f'; });
}

// " of 4976698672 bytes" from the pointer's "size" line, or nothing.
std::string PointedSize(std::string_view text) {
  const size_t at = text.find("\nsize ");
  if (at == std::string_view::npos) return "";
  const size_t begin = at + 6;
  const size_t end = text.find_first_not_of("0123456789", begin);
  return fmt::format(" of {} bytes", text.substr(begin, std::min<size_t>(end - begin, 20)));
}

Status LfsPointer(const std::string& path, std::string_view text) {
  return Refused(
      fmt::format("{}: is a Git LFS pointer instead of the file{} that it stands for; fix: run "
                  "`git lfs pull` in that "
                  "directory, or download the file itself",
                  path, PointedSize(text)));
}

Status EmptyFile(const std::string& path) {
  return Refused(path + ": the file is empty (0 bytes); fix: download it again");
}

}  // namespace

FileKind SniffFile(std::span<const std::byte> bytes) {
  const std::string_view text = TextOf(bytes);
  if (text.empty()) return FileKind::kEmpty;
  if (text.starts_with(kLfsStart)) return FileKind::kLfsPointer;
  if (text.starts_with("GGUF")) return FileKind::kGguf;
  for (const std::string_view magic : {"lmgg", "fmgg", "tjgg", "algg"}) {
    if (text.starts_with(magic)) return FileKind::kOldGgml;
  }
  if (text.starts_with("PK\x03\x04")) return FileKind::kZip;
  if (LooksLikeSafetensors(text)) return FileKind::kSafetensors;
  if (text.starts_with("\x80") && text.size() > 1 && text[1] >= 2 && text[1] <= 5) {
    return FileKind::kPickle;
  }
  const std::string start = ToLowerAscii(Trim(text.substr(0, 64)));
  if (start.starts_with("<!doctype html") || start.starts_with("<html")) return FileKind::kHtml;
  if (start.starts_with("{") || start.starts_with("[")) return FileKind::kJson;
  return FileKind::kOther;
}

Status WrongFile(const std::string& path, std::span<const std::byte> bytes,
                 std::string_view wanted) {
  const auto refuse = [&](std::string_view what, std::string_view fix) {
    return Refused(fmt::format("{}: is {}, not {}; fix: {}", path, what, wanted, fix));
  };
  switch (SniffFile(bytes)) {
    case FileKind::kEmpty:
      return EmptyFile(path);
    case FileKind::kLfsPointer:
      return LfsPointer(path, TextOf(bytes));
    case FileKind::kGguf:
      return refuse("a GGUF file", "give the path of that file as the model");
    case FileKind::kSafetensors:
      return refuse("a safetensors file", "give the path of that file, or of its directory");
    case FileKind::kZip:
    case FileKind::kPickle:
      return refuse("a PyTorch pickle, which would run code when read",
                    "convert it to safetensors (transformers: save_pretrained)");
    case FileKind::kOldGgml:
      return refuse("a GGML file from before GGUF", "download or make a GGUF file of the model");
    case FileKind::kHtml:
      return refuse("an HTML page saved under this name", "download the file itself");
    case FileKind::kJson:
      return refuse("JSON text", "give the directory that holds it");
    case FileKind::kOther:
      return refuse("of no kind known here",
                    "give a .gguf file, a .safetensors file or a Hugging Face directory");
  }
  return InternalError("unknown kind of file");
}

Status CheckTextFile(const std::string& path, std::string_view text) {
  if (text.empty()) return EmptyFile(path);
  if (text.starts_with(kLfsStart)) return LfsPointer(path, text);
  return {};
}

std::string QuotedName(std::string_view name) {
  constexpr size_t kLongest = 200;
  if (name.size() <= kLongest) return JsonQuote(name);
  return fmt::format("{}... ({} bytes)", JsonQuote(name.substr(0, kLongest)), name.size());
}

}  // namespace tenon
