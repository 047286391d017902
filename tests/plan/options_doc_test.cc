// docs/options.md holds the option table of this build. To renew it after a change of the rows: run
// this test with TENON_TEST_UPDATE_DOCS=1.
#include <gtest/gtest.h>

#include <string>

#include "support/paths.h"
#include "tenon/base/env.h"
#include "tenon/base/file.h"
#include "tenon/plan/options.h"

namespace tenon {
namespace {

TEST(Docs, OptionsAreThoseOfTheTable) {
  const std::string path = test::DataPath("../docs/options.md");
  const Result<std::string> text = ReadFile(path);
  ASSERT_TRUE(text.ok()) << text.message();
  const size_t begin = text->find("| Option |");
  ASSERT_NE(begin, std::string::npos);
  const std::string table = EngineOptionTable().Markdown();
  if (GetEnv("TENON_TEST_UPDATE_DOCS")) {
    ASSERT_TRUE(WriteFile(path, text->substr(0, begin) + table).ok());
  } else {
    EXPECT_EQ(text->substr(begin), table);
  }
}

}  // namespace
}  // namespace tenon
