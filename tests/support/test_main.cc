#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "support/isa.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const tenon::Isa isa = tenon::test::TestIsa();
  if (isa > tenon::DetectMachine().isa) {
    std::printf("skipped: this machine has no %s\n", std::string(NameOf(isa)).c_str());
    return 0;
  }
  return RUN_ALL_TESTS();
}
