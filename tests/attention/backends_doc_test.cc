// docs/attention-backends.md holds the table of this build. To renew it: run this test with
// TENON_TEST_UPDATE_DOCS=1.
#include <gtest/gtest.h>

#include <string>

#include "support/paths.h"
#include "tenon/attention/capability.h"
#include "tenon/base/env.h"
#include "tenon/base/file.h"
#include "tenon/ops/kernel_choice.h"

namespace tenon {
namespace {

TEST(Docs, BackendsAreThoseThatAreDeclared) {
  const std::string path = test::DataPath("../docs/attention-backends.md");
  const Result<std::string> text = ReadFile(path);
  ASSERT_TRUE(text.ok()) << text.message();
  const size_t begin = text->find("| backend |");
  ASSERT_NE(begin, std::string::npos);
  // Rows are declared for all machines: any table of kernels does.
  const std::string table = CapabilityMarkdown(BuiltinBackends(KernelsFor(Isa::kReference)));
  if (GetEnv("TENON_TEST_UPDATE_DOCS")) {
    ASSERT_TRUE(WriteFile(path, text->substr(0, begin) + table).ok());
  } else {
    EXPECT_EQ(text->substr(begin), table);
  }
}

}  // namespace
}  // namespace tenon
