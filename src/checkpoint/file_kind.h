// What a file really is, by its first bytes: a weight file that was not downloaded, is a pointer, a
// pickle or a web page is refused by its own name. Not a parser. Pure functions, thread-safe.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "tenon/base/status.h"

namespace tenon {

enum class FileKind {
  kEmpty,
  kLfsPointer,
  kGguf,
  kSafetensors,
  kZip,      // what torch.save writes since 1.6
  kPickle,   // what it wrote before
  kOldGgml,  // ggml, ggmf, ggjt, ggla: before GGUF
  kHtml,     // an error page saved under the file's name
  kJson,
  kOther,
};
FileKind SniffFile(std::span<const std::byte> bytes);

// The refusal of a file of this kind where `wanted` ("a safetensors file") should be, with the fix.
Status WrongFile(const std::string& path, std::span<const std::byte> bytes,
                 std::string_view wanted);
// OK unless the text file (JSON, template) is empty or a Git LFS pointer.
Status CheckTextFile(const std::string& path, std::string_view text);

// A name from a file, in quotes, escaped and cut to a length that suits a message.
std::string QuotedName(std::string_view name);

}  // namespace tenon
