// Kernels compiled on demand: what they compute against the brute force, what hooks do, and the
// cache: entries of others are rebuilt, nothing is compiled before loading.
#include <cstdlib>
#include <filesystem>

#include "attention/harness.h"
#include "tenon/attention/backends/builtin.h"
#include "tenon/attention/backends/flashinfer_compiler.h"
#include "tenon/base/file.h"

namespace tenon::test {
namespace {

using backends::KernelCompiler;

constexpr RequestPhase kP = RequestPhase::kPrefill;
constexpr RequestPhase kV = RequestPhase::kVerify;
constexpr RequestPhase kD = RequestPhase::kDecode;
const std::vector<TestRequest> kMixed = {{kP, 0, 1},  {kP, 0, 40}, {kP, 33, 7}, {kP, 300, 40},
                                         {kV, 50, 3}, {kD, 99, 1}, {kD, 700, 1}};

AttentionSpec PlainSpec() {
  AttentionSpec spec;
  spec.heads = 4;
  spec.kv_heads = 2;
  spec.head_dim = spec.v_head_dim = 16;
  spec.scale = 0.25f;
  return spec;
}

bool CanRun(Isa isa) { return isa <= DetectMachine().isa; }

class Jit : public testing::Test {
 protected:
  void SetUp() override {
    if (!CanRun(TestIsa())) GTEST_SKIP() << "not on this machine";
    folder_ = testing::TempDir() + "tenon_jit_" + std::to_string(::getpid());
    ::setenv("XDG_CACHE_HOME", folder_.c_str(), 1);
    if (!KernelCompiler::Find(TestIsa()).usable()) GTEST_SKIP() << "no compiler here";
  }
  void TearDown() override {
    ::unsetenv("XDG_CACHE_HOME");
    ::unsetenv("TENON_JIT_CXX");
    std::filesystem::remove_all(folder_);
  }
  int64_t Entries() const {
    int64_t count = 0;
    if (!IsDirectory(folder_)) return 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_))
      count += entry.is_regular_file() ? 1 : 0;
    return count;
  }
  // A backend whose kernel for the layer is loaded.
  std::shared_ptr<const AttentionBackend> Loaded(const AttentionSpec& spec,
                                                 backends::VariantHooks hooks = {}) {
    const auto backend = backends::MakeFlashInfer(
        Kernels(), {.jit = AttentionJit::kRequire, .hooks = std::move(hooks)});
    backend->CreateLayer(spec);
    const Status status = backend->LoadKernels();
    EXPECT_TRUE(status.ok()) << status.message();
    return backend;
  }
  std::string folder_;
};

TEST_F(Jit, CompiledKernelsAreRight) {
  const std::vector<float> sinks = {0.5f, -1, 2, 0};
  const std::vector<float> slopes = {0.5f, 0.25f, 0.03f, 0.7f};
  const float* sinks_at = sinks.data();
  const float* slopes_at = slopes.data();
  std::vector<AttentionSpec> specs(4, PlainSpec());
  specs[0].sinks = &sinks_at;
  specs[1].kv_dtype = DType::kBF16;
  specs[1].window = 20;
  specs[1].softcap = 0.75f;
  specs[2].alibi_slopes = &slopes_at;
  specs[2].v_head_dim = 7;
  specs[2].page_tokens = 32;
  specs[3].custom_mask = true;
  const auto backend = backends::MakeFlashInfer(Kernels(), {.jit = AttentionJit::kRequire});
  for (const AttentionSpec& spec : specs) backend->CreateLayer(spec);
  EXPECT_EQ(Entries(), 0) << "nothing is compiled before loading";
  const auto notes = backend->PlanKernels();
  ASSERT_TRUE(notes.ok()) << notes.message();
  ASSERT_EQ(notes->size(), 4u);
  EXPECT_TRUE((*notes)[1].starts_with("compiled: bf16_16x16_page16_window_softcap, by /"))
      << (*notes)[1];
  const Status status = backend->LoadKernels();
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(Entries(), 4);
  int threads = 0;
  for (AttentionSpec& spec : specs) {
    std::vector<TestRequest> requests = kMixed;
    if (spec.custom_mask) AddMasks(spec.kind, 3, requests);
    for (const KvLayout layout : {KvLayout::kNhd, KvLayout::kHnd}) {
      spec.kv_layout = layout;
      const auto data = MakeData(spec, requests, 6);
      threads = threads % 3 + 1;
      const auto out = RunLayer(*backend, spec, requests, data, {.threads = threads});
      EXPECT_LT(Distance(out, BruteForce(spec, spec.kv_dtype, requests, data)), 1e-5);
      // The batch is no matter.
      EXPECT_TRUE(RunLayer(*backend, spec, {requests[6]}, {data[6]}) ==
                  std::vector<float>(out.end() - 4 * spec.v_head_dim, out.end()));
    }
    const auto kernels = KernelsOf(*backend, spec, requests);
    EXPECT_NE(std::find(kernels.begin(), kernels.end(), "FLASHINFER/compiled"), kernels.end());
  }
  EXPECT_EQ(Entries(), 4);
}

// NaN shows, in its own sequence only.
TEST_F(Jit, NotANumberShows) {
  const AttentionSpec spec = PlainSpec();
  const auto backend = Loaded(spec);
  const std::vector<TestRequest> requests = {{kD, 200, 1}, {kD, 30, 1}};
  auto data = MakeData(spec, requests, 5);
  const auto clean = RunLayer(*backend, spec, requests, data);
  data[0].k[3] = NAN;
  const auto out = RunLayer(*backend, spec, requests, data);
  EXPECT_TRUE(std::isnan(out[0]));
  EXPECT_TRUE(std::equal(out.begin() + 64, out.end(), clean.begin() + 64));
}

// What each hook does is what another layer computes without hooks.
TEST_F(Jit, HooksAreCalculatedInPlace) {
  const AttentionSpec spec = PlainSpec();
  auto requests = kMixed;
  const auto data = MakeData(spec, requests, 6);
  // Twice the query, half the key, half the score: half the scale.
  const auto scaled = Loaded(spec, {.query = "2.0f * x", .key = "x / 2", .logits = "0.5f * score"});
  AttentionSpec half = spec;
  half.scale *= 0.5f;
  EXPECT_LT(Distance(RunLayer(*scaled, spec, requests, data),
                     BruteForce(half, spec.kv_dtype, requests, data)),
            1e-5);
  // Every third key, and oneself: as a mask has it.
  const auto masked = Loaded(spec, {.mask = "key % 3 == 0 || key == query"});
  auto with_masks = requests;
  for (TestRequest& r : with_masks) {
    const int64_t keys = r.before + r.rows;
    r.mask.assign(static_cast<size_t>((r.rows * keys + 7) / 8), 0);
    for (int64_t bit = 0; bit < r.rows * keys; ++bit) {
      const int64_t query = r.before + bit / keys;
      const int64_t key = bit % keys;
      if (key <= query && (key % 3 == 0 || key == query))
        r.mask[static_cast<size_t>(bit / 8)] |= static_cast<uint8_t>(1 << bit % 8);
    }
  }
  EXPECT_LT(Distance(RunLayer(*masked, spec, requests, data),
                     BruteForce(spec, spec.kv_dtype, with_masks, data)),
            1e-5);
}

TEST_F(Jit, AHookThatIsNoExpressionSaysSo) {
  const auto backend = backends::MakeFlashInfer(Kernels(), {.hooks = {.logits = "score +"}});
  backend->CreateLayer(PlainSpec());
  const Status status = backend->LoadKernels();
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.message().find("cannot be compiled"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("error:"), std::string::npos) << status.message();
  EXPECT_EQ(Entries(), 0) << "nothing half-written";
}

// Layers that no variant is for.
TEST_F(Jit, OtherLayersTakeTheGenericKernel) {
  AttentionSpec spec = PlainSpec();
  spec.kv_dtype = DType::kI8;
  const auto automatic = backends::MakeFlashInfer(Kernels(), {.jit = AttentionJit::kAuto});
  automatic->CreateLayer(spec);
  ASSERT_TRUE(automatic->PlanKernels().ok());
  EXPECT_EQ(automatic->PlanKernels()->at(0), "generic: kv_dtype = i8, variants read {f32, bf16}");
  const auto required = backends::MakeFlashInfer(Kernels(), {.jit = AttentionJit::kRequire});
  required->CreateLayer(spec);
  ASSERT_FALSE(required->PlanKernels().ok());
  EXPECT_NE(required->PlanKernels().message().find("--attn-jit require"), std::string::npos);
}

constexpr const char* kSource =
    "extern \"C\" __attribute__((visibility(\"default\"))) int f() "
    "{ return %; }\n";
KernelCompiler::Unit UnitOf(int value) {
  std::string source = kSource;
  source.replace(source.find('%'), 1, std::to_string(value));
  return {"unit", "abi-1", source, "f"};
}
int Call(const Result<void*>& function) {
  EXPECT_TRUE(function.ok()) << function.message();
  return function.ok() ? reinterpret_cast<int (*)()>(*function)() : -1;
}

TEST_F(Jit, EntriesOfOthersAreRebuilt) {
  const KernelCompiler compiler = KernelCompiler::Find(TestIsa());
  const KernelCompiler::Unit unit = UnitOf(7);
  EXPECT_FALSE(compiler.Has(unit));
  EXPECT_EQ(Call(compiler.Load(unit)), 7);
  EXPECT_TRUE(compiler.Has(unit));
  // What is whole, but made from another source, in the place of ours.
  const KernelCompiler::Unit other = UnitOf(8);
  EXPECT_EQ(Call(compiler.Load(other)), 8);
  std::filesystem::remove(compiler.PathOf(unit));
  std::filesystem::copy_file(compiler.PathOf(other), compiler.PathOf(unit));
  EXPECT_FALSE(compiler.Has(unit));
  EXPECT_EQ(Call(compiler.Load(unit)), 7);
  // Cut short, with nothing of the key.
  std::filesystem::remove(compiler.PathOf(unit));
  ASSERT_TRUE(WriteFile(compiler.PathOf(unit),
                        "\x7f"
                        "ELF")
                  .ok());
  EXPECT_EQ(Call(compiler.Load(unit)), 7);
  // Another interface or instruction set is another entry.
  KernelCompiler::Unit newer = unit;
  newer.abi = "abi-2";
  EXPECT_FALSE(compiler.Has(newer));
  EXPECT_NE(compiler.PathOf(newer), compiler.PathOf(unit));
}

// A filled cache serves where there is no compiler; an empty one is no error until it is required.
TEST_F(Jit, WithoutACompiler) {
  const AttentionSpec spec = PlainSpec();
  Loaded(spec);
  ::setenv("TENON_JIT_CXX", "/nowhere/c++", 1);
  const auto data = MakeData(spec, kMixed, 6);
  EXPECT_LT(Distance(RunLayer(*Loaded(spec), spec, kMixed, data),
                     BruteForce(spec, spec.kv_dtype, kMixed, data)),
            1e-5);
  AttentionSpec other = spec;
  other.softcap = 1;
  const auto automatic = backends::MakeFlashInfer(Kernels(), {.jit = AttentionJit::kAuto});
  automatic->CreateLayer(other);
  EXPECT_EQ(automatic->PlanKernels()->at(0),
            "generic: TENON_JIT_CXX = '/nowhere/c++' is no compiler that can be run");
  EXPECT_TRUE(automatic->LoadKernels().ok());
  const auto kernels = KernelsOf(*automatic, other, kMixed);
  EXPECT_NE(std::find(kernels.begin(), kernels.end(), "FLASHINFER/generic"), kernels.end());
  const auto required = backends::MakeFlashInfer(Kernels(), {.jit = AttentionJit::kRequire});
  required->CreateLayer(other);
  EXPECT_EQ(required->PlanKernels().message(),
            "attention kernels compiled on demand are required (--attn-jit require), but "
            "TENON_JIT_CXX = '/nowhere/c++' is no compiler that can be run; fix: --attn-jit auto");
}

}  // namespace
}  // namespace tenon::test
