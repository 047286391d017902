#include <gtest/gtest.h>

#include <atomic>

#include "tenon/base/env.h"
#include "tenon/base/ledger.h"
#include "tenon/base/log.h"
#include "tenon/base/machine_profile.h"
#include "tenon/base/status.h"
#include "tenon/base/text.h"

namespace tenon {
namespace {

Result<int> Half(int n) {
  if (n % 2 != 0) return UsageError("odd");
  return n / 2;
}
Result<int> Quarter(int n) {
  TN_ASSIGN_OR_RETURN(const int half, Half(n), "first half");
  TN_ASSIGN_OR_RETURN(const int quarter, Half(half), "second half");
  return quarter;
}

TEST(Status, ContextReadsOutsideIn) {
  EXPECT_EQ(*Quarter(8), 2);
  EXPECT_EQ(Quarter(6).message(), "second half: odd");
  EXPECT_EQ(Quarter(6).status().WithContext("outer").message(), "outer: second half: odd");
}

TEST(Status, ExitCodes) {
  EXPECT_EQ(ExitCodeOf(StatusCode::kOk), 0);
  EXPECT_EQ(ExitCodeOf(StatusCode::kIo), 1);
  EXPECT_EQ(ExitCodeOf(StatusCode::kUsage), 2);
  EXPECT_EQ(ExitCodeOf(StatusCode::kNotFound), 2);
  EXPECT_EQ(ExitCodeOf(StatusCode::kRefused), 3);
  EXPECT_EQ(ExitCodeOf(StatusCode::kDoesNotFit), 4);
}

TEST(Ledger, KindFollowsOrigin) {
  EXPECT_EQ(KindOfChange({Origin::Kind::kUser, "--x"}), DecisionKind::kDowngraded);
  EXPECT_EQ(KindOfChange({Origin::Kind::kCheckpoint, ""}), DecisionKind::kDowngraded);
  EXPECT_EQ(KindOfChange({Origin::Kind::kEngineDefault, ""}), DecisionKind::kAdjusted);
}

TEST(Ledger, DowngradeNeedsConsent) {
  const Decision downgrade{"attention.window",       "4096", "none", "t", "no kernel",
                           DecisionKind::kDowngraded};
  Ledger strict;
  const Status refused = strict.Record(downgrade);
  EXPECT_EQ(refused.code(), StatusCode::kUsage);
  EXPECT_NE(refused.message().find("--allow-downgrade attention.window"), std::string::npos);
  EXPECT_EQ(strict.decisions().size(), 1u);
  Ledger consenting({"attention.window"});
  EXPECT_TRUE(consenting.Record(downgrade).ok());
  EXPECT_EQ(consenting.decisions().size(), 1u);
}

TEST(Env, PrefixListsSetVariablesSorted) {
  ::setenv("TENON_PREFIX_B", "x=1", 1);
  ::setenv("TENON_PREFIX_A", "a", 1);
  ::setenv("TENON_PREFIX_EMPTY", "", 1);
  ::setenv("NOT_TENON_PREFIX_C", "c", 1);
  const std::vector<std::pair<std::string, std::string>> expected = {{"TENON_PREFIX_A", "a"},
                                                                     {"TENON_PREFIX_B", "x=1"}};
  EXPECT_EQ(EnvWithPrefix("TENON_PREFIX_"), expected);
  for (const char* name :
       {"TENON_PREFIX_A", "TENON_PREFIX_B", "TENON_PREFIX_EMPTY", "NOT_TENON_PREFIX_C"}) {
    ::unsetenv(name);
  }
}

TEST(Text, NearNames) {
  const std::vector<std::string> names = {"LlamaForCausalLM", "MixtralForCausalLM",
                                          "BertForMaskedLM"};
  EXPECT_EQ(NearNames("LlamaForCasualLM", names).front(), "LlamaForCausalLM");
  EXPECT_TRUE(NearNames("Quux", names).empty());
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3);
}

TEST(Text, Bytes) {
  EXPECT_EQ(BytesText(312), "312 B");
  EXPECT_EQ(BytesText(1536), "1.5 KiB");
  EXPECT_EQ(BytesText(98 << 20), "98 MiB");
}

TEST(MachineProfile, IsNamesRoundTrip) {
  for (const Isa isa : {Isa::kReference, Isa::kBaseline, Isa::kAvx2, Isa::kAvx512,
                        Isa::kAvx512Bf16Vnni, Isa::kAmx}) {
    EXPECT_EQ(*ParseIsa(NameOf(isa)), isa);
  }
  EXPECT_NE(ParseIsa("sse9").message().find("avx2"), std::string::npos);
}

TEST(MachineProfile, ThisMachineIsPlausible) {
  const MachineProfile machine = DetectMachine();
  EXPECT_GE(machine.cores, 1);
  EXPECT_GT(machine.memory_bytes, 100 << 20);
  EXPECT_GT(machine.available_bytes, 0);
  EXPECT_LE(machine.available_bytes, machine.memory_bytes);
}

TEST(Log, LevelsByName) {
  EXPECT_EQ(*ParseLogLevel("Warning"), LogLevel::kWarning);
  EXPECT_EQ(*ParseLogLevel("off"), LogLevel::kOff);
  EXPECT_EQ(ParseLogLevel("loud").message(),
            "log = 'loud', allowed: debug, info, warning, error, off");
}

TEST(Text, PrintableHidesWhatATerminalWouldObey) {
  EXPECT_EQ(Printable("caf\u00e9 \u4e2d\U0001f600\nnext"), "caf\u00e9 \u4e2d\U0001f600\nnext");
  EXPECT_EQ(Printable("\x1b[31m\x07\x7f\t"), "\\x1b[31m\\x07\\x7f\\x09");
  EXPECT_EQ(Printable("\xc2\x9b"
                      "2J"),
            "\\xc2\\x9b2J");  // C1 control
  EXPECT_EQ(Printable("a\xff\xc3"
                      "b\xe4\xb8"),
            "a\\xff\\xc3b\\xe4\\xb8");  // no UTF-8
  EXPECT_EQ(Printable("abcdef", 4), "abcd... (6 bytes)");
  EXPECT_EQ(Printable("abcd", 4), "abcd");
  EXPECT_EQ(Printable(""), "");
}

TEST(Status, ContextIsGivenOnce) {
  const Status status = Refused("key is absent").WithContext("a.gguf");
  EXPECT_EQ(status.WithContext("a.gguf").message(), "a.gguf: key is absent");
  EXPECT_EQ(status.WithContext("a").message(), "a: a.gguf: key is absent");
}

}  // namespace
}  // namespace tenon
