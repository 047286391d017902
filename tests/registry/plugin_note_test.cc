// The reader of a plugin's tag: what linkers write, and that no bytes make it read outside them.
#include "tenon/registry/plugin_note.h"

#include <elf.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "support/words.h"
#include "tenon/base/file.h"
#include "tenon/registry/plugin_loader.h"

namespace tenon {
namespace {

// In memory that ends where the bytes end, for the sanitizers.
Result<std::string> Read(std::string_view bytes) {
  const auto copy = std::make_unique<std::byte[]>(bytes.size());
  std::memcpy(copy.get(), bytes.data(), bytes.size());
  return ReadPluginTag({copy.get(), bytes.size()});
}

std::string GoodPlugin() { return *ReadFile(std::string(TN_TEST_PLUGIN_DIR) + "/good.so"); }

Elf64_Ehdr HeaderOf(const std::string& file) {
  Elf64_Ehdr header;
  std::memcpy(&header, file.data(), sizeof(header));
  return header;
}

struct Note {
  std::string owner;
  uint32_t type = 1;
  std::string text;
};

// A library of nothing but one segment of notes.
std::string Library(std::initializer_list<Note> notes, uint64_t alignment = 4) {
  std::string body;
  const auto add = [&](std::string text) {
    text.resize((text.size() + alignment - 1) / alignment * alignment);
    body += text;
  };
  for (const Note& note : notes) {
    const Elf64_Nhdr head = {static_cast<Elf64_Word>(note.owner.size() + 1),
                             static_cast<Elf64_Word>(note.text.size()), note.type};
    std::string name(reinterpret_cast<const char*>(&head), sizeof(head));
    add(name + note.owner + '\0');
    add(note.text);
  }
  Elf64_Ehdr header = {};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_type = ET_DYN;
  header.e_machine = HeaderOf(GoodPlugin()).e_machine;
  header.e_phoff = sizeof(header);
  header.e_phentsize = sizeof(Elf64_Phdr);
  header.e_phnum = 1;
  Elf64_Phdr segment = {};
  segment.p_type = PT_NOTE;
  segment.p_offset = sizeof(header) + sizeof(segment);
  segment.p_filesz = body.size();
  segment.p_align = alignment;
  return std::string(reinterpret_cast<const char*>(&header), sizeof(header)) +
         std::string(reinterpret_cast<const char*>(&segment), sizeof(segment)) + body;
}

TEST(PluginNote, OfALibraryThatALinkerWrote) {
  const auto tag = Read(GoodPlugin());
  ASSERT_TRUE(tag.ok()) << tag.message();
  EXPECT_EQ(*tag, PluginTag());
}

TEST(PluginNote, AmongOthers) {
  for (const uint64_t alignment : {4, 8}) {
    EXPECT_EQ(*Read(Library({{"Tenon", 1, "a tag"}}, alignment)), "a tag");
    EXPECT_EQ(*Read(Library({{"GNU", 3, "12345"}, {"", 0, ""}, {"Tenon", 1, "x"}}, alignment)),
              "x");
    EXPECT_EQ(*Read(Library({{"Tenon", 2, "no"}, {"Teno", 1, "no"}, {"Tenon", 1, "y"}}, alignment)),
              "y");
  }
  EXPECT_FALSE(Read(Library({{"Tenonx", 1, "no"}, {"tenon", 1, "no"}})).ok());
  EXPECT_FALSE(Read(Library({{"Tenon", 1, std::string(257, 'x')}})).ok());
  EXPECT_FALSE(Read(Library({})).ok());
}

TEST(PluginNote, EachWrongFileSaysWhatItIs) {
  const std::string good = Library({{"Tenon", 1, "a tag"}});
  const auto with = [&](auto change) {
    Elf64_Ehdr header = HeaderOf(good);
    change(header);
    std::string file = good;
    std::memcpy(file.data(), &header, sizeof(header));
    return Read(file).message();
  };
  test::ExpectWords(Read("MZ\x90").message(), {"no ELF"});
  test::ExpectWords(with([](auto& h) { h.e_ident[EI_CLASS] = ELFCLASS32; }), {"another kind"});
  test::ExpectWords(with([](auto& h) { h.e_machine = EM_SPARC; }), {"another kind", "machine 2"});
  test::ExpectWords(with([](auto& h) { h.e_type = ET_REL; }), {"no shared library"});
  test::ExpectWords(with([](auto& h) { h.e_phnum = 60000; }), {"60000 segments"});
  test::ExpectWords(with([](auto& h) { h.e_phentsize = 0; }), {"0 bytes each"});
  test::ExpectWords(with([](auto& h) { h.e_phoff = ~uint64_t{0}; }), {"cut off"});
  test::ExpectWords(Read(Library({{"GNU", 1, "x"}})).message(), {"no tag"});
}

// Every length below what its segments need is an error; of what comes after them nothing is read.
TEST(PluginNote, CutOffAnywhere) {
  const std::string small = Library({{"GNU", 3, "12345"}, {"Tenon", 1, "a tag"}}, 8);
  for (size_t size = 0; size < small.size(); ++size) {
    EXPECT_FALSE(Read(small.substr(0, size)).ok()) << size;
  }
  const std::string good = GoodPlugin();
  const Elf64_Ehdr header = HeaderOf(good);
  const size_t headers = header.e_phoff + header.e_phnum * sizeof(Elf64_Phdr);
  for (size_t size = 0; size < headers + 1024; ++size) {
    EXPECT_FALSE(Read(good.substr(0, size)).ok()) << size;
  }
  const size_t sections = header.e_shoff;
  ASSERT_GT(sections, headers);
  for (size_t size = sections; size < good.size(); ++size) {
    EXPECT_TRUE(Read(good.substr(0, size)).ok()) << size;
  }
}

TEST(PluginNote, DamagedAnywhere) {
  std::string file = Library({{"GNU", 3, "12345"}, {"Tenon", 1, "a tag"}});
  for (char& byte : file) {
    const char before = byte;
    for (const int value : {0x00, 0x01, 0x7f, 0x80, 0xff}) {
      byte = static_cast<char>(value);
      const auto tag = Read(file);  // whatever it says
      if (!tag.ok()) EXPECT_EQ(tag.code(), StatusCode::kUsage);
    }
    byte = before;
  }
}

}  // namespace
}  // namespace tenon
