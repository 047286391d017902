#include "tenon/base/file.h"

#include <gtest/gtest.h>

#include <string>

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
