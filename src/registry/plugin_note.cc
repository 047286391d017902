#include "tenon/registry/plugin_note.h"

#include <elf.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>

#include "tenon/base/text.h"

namespace tenon {
namespace {

using Bytes = std::span<const std::byte>;

constexpr std::string_view kOwner = "Tenon";
constexpr uint32_t kTagType = 1;
// Tags are about 50 bytes; what is longer is none.
constexpr size_t kLongestTag = 256;
// Real libraries have about ten.
constexpr uint64_t kMostSegments = 128;
#if defined(__x86_64__)
constexpr Elf64_Half kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr Elf64_Half kMachine = EM_AARCH64;
#endif

// Copies, because nothing in a file needs to be aligned.
template <typename T>
std::optional<T> At(Bytes bytes, uint64_t offset) {
  if (offset > bytes.size() || bytes.size() - offset < sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

std::optional<Bytes> Slice(Bytes bytes, uint64_t offset, uint64_t size) {
  if (offset > bytes.size() || bytes.size() - offset < size) return std::nullopt;
  return bytes.subspan(offset, size);
}

std::string_view TextOf(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Status CutOff(std::string_view what) {
  return UsageError(
      fmt::format("the file ends before its {}: it is cut off; fix: copy or build it again", what));
}

// The tag in one segment of notes, if it is there. What cannot be a note ends the segment.
std::optional<std::string> TagIn(Bytes notes, uint64_t alignment) {
  const auto padded = [&](uint64_t size) { return (size + alignment - 1) / alignment * alignment; };
  while (const auto note = At<Elf64_Nhdr>(notes, 0)) {
    // 32-bit sizes: no sum here overflows.
    const uint64_t text_at = padded(sizeof(Elf64_Nhdr) + uint64_t{note->n_namesz});
    const auto name = Slice(notes, sizeof(Elf64_Nhdr), note->n_namesz);
    const auto text = Slice(notes, text_at, note->n_descsz);
    if (!name || !text) return std::nullopt;
    // The name counts its zero at the end.
    if (TextOf(*name) == std::string_view(kOwner.data(), kOwner.size() + 1) &&
        note->n_type == kTagType && text->size() <= kLongestTag) {
      return std::string(TextOf(*text));
    }
    const uint64_t next = text_at + padded(note->n_descsz);
    notes = notes.subspan(std::min<uint64_t>(next, notes.size()));
  }
  return std::nullopt;
}

Status CheckHeader(const Elf64_Ehdr& header) {
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB ||
      header.e_machine != kMachine) {
    return UsageError(fmt::format(
        "it is made for another kind of machine (ELF class {}, machine {}), this one is 64-bit, "
        "machine {}; fix: build it here",
        header.e_ident[EI_CLASS], header.e_machine, kMachine));
  }
  if (header.e_type != ET_DYN) {
    return UsageError(
        fmt::format("it is no shared library (ELF type {}); fix: build it with tenon_add_plugin",
                    header.e_type));
  }
  if (header.e_phentsize != sizeof(Elf64_Phdr)) {
    return UsageError(fmt::format("its program headers have {} bytes each, must be {}",
                                  header.e_phentsize, sizeof(Elf64_Phdr)));
  }
  if (header.e_phnum > kMostSegments) {
    return UsageError(
        fmt::format("it has {} segments, at most {}", header.e_phnum, kMostSegments));
  }
  return {};
}

}  // namespace

Result<std::string> ReadPluginTag(Bytes file) {
  if (!TextOf(file).starts_with(std::string_view(ELFMAG, SELFMAG))) {
    return UsageError("it is no ELF shared library; fix: name the .so, or the folder that has it");
  }
  const auto header = At<Elf64_Ehdr>(file, 0);
  if (!header) return CutOff("ELF header");
  TN_RETURN_IF_ERROR(CheckHeader(*header));
  for (uint64_t i = 0; i < header->e_phnum; ++i) {
    // e_phoff may be anything, and wraps around: At only reads what is there.
    const auto segment = At<Elf64_Phdr>(file, header->e_phoff + i * sizeof(Elf64_Phdr));
    if (!segment) return CutOff("program headers");
    if (segment->p_type != PT_NOTE && segment->p_type != PT_LOAD) continue;
    const auto bytes = Slice(file, segment->p_offset, segment->p_filesz);
    if (!bytes) return CutOff("segments");
    if (segment->p_type != PT_NOTE) continue;
    if (auto tag = TagIn(*bytes, segment->p_align == 8 ? 8 : 4)) return *std::move(tag);
  }
  return UsageError(
      "it is a shared library, but no plugin: it has no tag; fix: TN_PLUGIN(...) in one source, "
      "and tenon_add_plugin to build it");
}

}  // namespace tenon
