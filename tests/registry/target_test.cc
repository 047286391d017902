// Specialised targets: criteria and their trace, the modes, the order against the rewriting of
// draft names, and a target that refuses at construction.
#include "tenon/registry/target.h"

#include <gtest/gtest.h>

#include "registry/fixtures.h"
#include "tenon/registry/resolution.h"

namespace tenon {
namespace {

using test::ExpectRefusal;
using test::FakeZoo;
using test::kIndex;

// Wants this many cores; what it is asked for is remembered.
struct FakeTarget {
  int cores = 8;
  bool bounds = true;
  int asked_bounds = 0;

  std::function<Status(Registrar&)> Registration(std::string architecture,
                                                 std::string name = "fast") {
    return [=, this](Registrar& registrar) {
      TargetEntry entry;
      entry.name = name;
      entry.architectures = {architecture};
      entry.fingerprint = [this](const TargetQuery& query) {
        const int found = query.context.machine.cores;
        return std::vector<Criterion>{
            {"isa", "any", "any", true},
            {"cores", std::to_string(found), std::to_string(cores), found == cores}};
      };
      entry.bounds = [this](const TargetQuery&) {
        ++asked_bounds;
        return std::vector<Criterion>{{"max_seq_len", "10", "at most 5", bounds}};
      };
      registrar.Target(std::move(entry));
      return Status();
    };
  }
};

class TargetTest : public testing::Test {
 protected:
  TargetTest() { context_.machine.cores = 8; }
  Registry Make(std::function<Status(Registrar&)> registration) {
    std::vector<Provider> builtins = zoo_.Builtins();
    builtins.push_back(zoo_.Make("gamma_fast", {.then = std::move(registration)}));
    return Registry(kIndex, std::move(builtins));
  }
  // Both steps, as the plan takes them.
  Result<Resolution> Run(Registry& registry, const Identity& identity, TargetMode mode) {
    TN_ASSIGN_OR_RETURN(Resolution resolution, Resolve(identity, registry, {.targets = mode}));
    const TargetQuery query = {config_, options_, context_};
    TN_RETURN_IF_ERROR(ChooseTarget(&query, mode, resolution));
    return resolution;
  }
  static Identity Gamma() { return {{"GammaForCausalLM"}, "gamma", "config.json"}; }

  FakeZoo zoo_;
  FakeTarget target_;
  ModelConfig config_;
  EngineOptions options_;
  LoadContext context_;
};

std::string LastWhy(const Resolution& resolution) { return resolution.trace.back().why; }

TEST_F(TargetTest, AMatchIsChosenWithItsCriteria) {
  Registry registry = Make(target_.Registration("GammaForCausalLM"));
  for (const TargetMode mode : {TargetMode::kAuto, TargetMode::kRequire}) {
    const auto resolved = Run(registry, Gamma(), mode);
    ASSERT_TRUE(resolved.ok()) << resolved.message();
    ASSERT_NE(resolved->target, nullptr);
    EXPECT_EQ(resolved->target->name, "fast");
    EXPECT_EQ(LastWhy(*resolved),
              "chosen: isa = any, wants any: match; cores = 8, wants 8: match; max_seq_len = 10, "
              "wants at most 5: match");
  }
}

TEST_F(TargetTest, OffAsksNobody) {
  Registry registry = Make(target_.Registration("GammaForCausalLM"));
  const auto resolved = Run(registry, Gamma(), TargetMode::kOff);
  ASSERT_TRUE(resolved.ok()) << resolved.message();
  EXPECT_EQ(resolved->target, nullptr);
  EXPECT_EQ(zoo_.Runs("gamma_fast"), 0);
}

TEST_F(TargetTest, AutoFallsBackAndRecordsItWhereRequireFails) {
  target_.cores = 64;
  Registry registry = Make(target_.Registration("GammaForCausalLM"));
  const auto resolved = Run(registry, Gamma(), TargetMode::kAuto);
  ASSERT_TRUE(resolved.ok()) << resolved.message();
  EXPECT_EQ(resolved->target, nullptr);
  EXPECT_EQ(LastWhy(*resolved),
            "not chosen: isa = any, wants any: match; cores = 8, wants 64: no match");
  EXPECT_EQ(target_.asked_bounds, 0) << "bounds may rely on the fingerprint";
  ExpectRefusal(Run(registry, Gamma(), TargetMode::kRequire),
                {"target = require", "fast: isa = any", "cores = 8, wants 64: no match",
                 "fix: --target auto"});
  target_.cores = 8;
  target_.bounds = false;
  ExpectRefusal(Run(registry, Gamma(), TargetMode::kRequire),
                {"max_seq_len = 10, wants at most 5: no match"});
}

TEST_F(TargetTest, RequireWithoutAnyTarget) {
  Registry registry = Make(target_.Registration("GammaForCausalLM"));
  const Identity alpha = {{"AlphaForCausalLM"}, "alpha", "config.json"};
  ASSERT_TRUE(Run(registry, alpha, TargetMode::kAuto).ok());
  ExpectRefusal(Run(registry, alpha, TargetMode::kRequire),
                {"no target serves 'AlphaForCausalLM'", "none is registered"});
}

// No draft matches a real target's fingerprint, so the two never meet; a made-up router holds the
// order: routers see the name before the rewriting, and a match counts more than it.
TEST_F(TargetTest, ATargetCountsMoreThanTheRewritingOfDrafts) {
  Registry registry = Make(target_.Registration("GammaForCausalLM"));
  Identity draft = Gamma();
  draft.has_draft_vocab_size = true;
  const auto resolved = Run(registry, draft, TargetMode::kAuto);
  ASSERT_TRUE(resolved.ok()) << resolved.message();
  ASSERT_NE(resolved->target, nullptr);
  EXPECT_EQ(resolved->architecture, "GammaForCausalLM") << "its config is read by this name";
  target_.cores = 64;
  ExpectRefusal(Run(registry, draft, TargetMode::kAuto), {"'EAGLE3GammaForCausalLM' is unknown"});
  ExpectRefusal(Run(registry, draft, TargetMode::kOff), {"'EAGLE3GammaForCausalLM' is unknown"});
}

TEST_F(TargetTest, ARefusalAtConstructionGoesBackToTheBuiltin) {
  Registry registry = Make(target_.Registration("GammaForCausalLM"));
  auto resolved = Run(registry, Gamma(), TargetMode::kAuto);
  ASSERT_TRUE(resolved.ok());
  ASSERT_TRUE(DropTarget({"the head is tied"}, TargetMode::kAuto, *resolved).ok());
  EXPECT_EQ(resolved->target, nullptr);
  EXPECT_EQ(resolved->trace.back().outcome, "built-in");
  EXPECT_EQ(LastWhy(*resolved), "'fast' refuses: the head is tied");
  resolved = Run(registry, Gamma(), TargetMode::kRequire);
  ASSERT_TRUE(resolved.ok());
  const Status failed = DropTarget({"the head is tied"}, TargetMode::kRequire, *resolved);
  EXPECT_EQ(failed.code(), StatusCode::kRefused);
  test::ExpectWords(failed.message(), {"target = require", "'fast' refuses", "the head is tied"});
}

}  // namespace
}  // namespace tenon
