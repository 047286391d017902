// docs/models.md holds the matrix of this build. To renew it: run this test with
// TENON_TEST_UPDATE_DOCS=1.
#include <gtest/gtest.h>

#include <string>

#include "support/paths.h"
#include "tenon/base/env.h"
#include "tenon/base/file.h"
#include "tenon/registry/model_list.h"
#include "tenon/zoo/zoo.h"

namespace tenon {
namespace {

TEST(Docs, ModelsAreThoseThatAreDeclared) {
  const std::string path = test::DataPath("../docs/models.md");
  const Result<std::string> text = ReadFile(path);
  ASSERT_TRUE(text.ok()) << text.message();
  const size_t begin = text->find("| Architecture |");
  ASSERT_NE(begin, std::string::npos);
  const auto registry = MakeRegistry();
  const std::string matrix = ModelMatrix(*registry);
  if (GetEnv("TENON_TEST_UPDATE_DOCS")) {
    ASSERT_TRUE(WriteFile(path, text->substr(0, begin) + matrix).ok());
  } else {
    EXPECT_EQ(text->substr(begin), matrix);
  }
}

}  // namespace
}  // namespace tenon
