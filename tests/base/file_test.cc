#include "tenon/base/file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace tenon {
namespace {

std::string PathOf(const char* name) { return testing::TempDir() + "tenon_file_test_" + name; }

TEST(FileWriter, PiecesBecomeOneFile) {
  const std::string path = PathOf("pieces");
  const auto writer = FileWriter::Create(path);
  ASSERT_TRUE(writer.ok()) << writer.message();
  ASSERT_TRUE((*writer)->Append("one ").ok());
  ASSERT_TRUE((*writer)->Append("").ok());
  ASSERT_TRUE((*writer)->Append("two").ok());
  EXPECT_EQ((*writer)->size(), 7);
  ASSERT_TRUE((*writer)->Commit().ok());
  EXPECT_EQ(*ReadFile(path), "one two");
  EXPECT_FALSE(FileExists(path + ".partial"));
}

TEST(FileWriter, WithoutCommitNothingChanges) {
  const std::string path = PathOf("kept");
  ASSERT_TRUE(WriteFile(path, "old").ok());
  {
    const auto writer = FileWriter::Create(path);
    ASSERT_TRUE((*writer)->Append("new and unfinished").ok());
  }
  EXPECT_EQ(*ReadFile(path), "old");
  EXPECT_FALSE(FileExists(path + ".partial"));
}

// Hints leave what is read as it is, whatever part of whatever page they name.
TEST(MappedFile, HintsChangeNothing) {
  const std::string path = PathOf("hints");
  std::string text(20000, 'a');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>('a' + i % 26);
  ASSERT_TRUE(WriteFile(path, text).ok());
  const auto file = MappedFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.message();
  const auto copy = MappedFile::Of("copy", (*file)->bytes());
  for (const auto& [begin, size] : std::vector<std::pair<size_t, size_t>>{
           {0, 0}, {0, 20000}, {1, 1}, {4095, 2}, {100, 9000}, {19999, 1}}) {
    for (const auto& f : {*file, copy}) {
      const auto part = f->bytes().subspan(begin, size);
      f->ReadAhead(part);
      f->GiveBack(part);
      EXPECT_EQ(std::memcmp(f->bytes().data(), text.data(), text.size()), 0)
          << begin << " " << size << " of " << f->path();
    }
  }
  std::filesystem::remove(path);
}

TEST(MappedFile, BytesInMemory) {
  const std::string text = "abc";
  const auto file = MappedFile::Of("name", std::as_bytes(std::span(text.data(), text.size())));
  EXPECT_EQ(file->path(), "name");
  ASSERT_EQ(file->bytes().size(), 3u);
  EXPECT_EQ(file->bytes()[2], std::byte{'c'});
  EXPECT_TRUE(MappedFile::Of("none", {})->bytes().empty());
}

TEST(FileWriter, ImpossiblePlaceIsAnError) {
  const auto writer = FileWriter::Create("/nonexistent_directory/file");
  ASSERT_FALSE(writer.ok());
  EXPECT_NE(writer.message().find("/nonexistent_directory/file"), std::string::npos);
}

}  // namespace
}  // namespace tenon
