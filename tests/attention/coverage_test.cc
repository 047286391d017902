// The capability table is true: for every row and attribute, a spec just inside runs and matches
// the brute force, a spec just outside is refused for that attribute and no other. Generated from
// the table: a new feature, row or value is tested without a line here.
#include <set>

#include "attention/mla_case.h"

namespace tenon::test {
namespace {

MachineProfile Machine(Isa isa = Isa::kAvx512Bf16Vnni) {
  MachineProfile machine;
  machine.isa = isa;
  return machine;
}

AttentionSpec Base() {
  AttentionSpec spec;
  spec.heads = 4;
  spec.kv_heads = 2;
  spec.head_dim = spec.v_head_dim = 16;
  spec.scale = 0.25f;
  return spec;
}

// What the row is for, where it is for one thing.
AttentionSpec Base(const KernelRow& row) {
  AttentionSpec spec = Base();
  if (!row.computes.any) spec.compute = row.computes.values[0];
  return spec;
}

// Examples of the feature table name tables without numbers; these have some.
struct Tables {
  std::vector<float> numbers = {0.5f,  -0.25f, 1,     0.125f, -1,    0.75f, 0.1f,  0.3f,
                                -0.6f, 0.9f,   0.2f,  -0.3f,  0.4f,  0.8f,  -0.7f, 0.6f,
                                0.5f,  0.2f,   0.1f,  1.1f,   -0.9f, 0.35f, 0.45f, 0.7f,
                                -0.2f, 0.3f,   0.25f, 0.6f,   -0.5f, 0.8f,  0.05f, 0.9f};
  const float* at = numbers.data();
};

AttentionSpec Realise(AttentionSpec spec, const Tables& tables) {
  if (spec.sinks != nullptr) spec.sinks = &tables.at;
  if (spec.alibi_slopes != nullptr) spec.alibi_slopes = &tables.at;
  if (spec.relative_bias) {
    TN_CHECK(static_cast<size_t>(spec.relative_bias->buckets * spec.heads) <= tables.numbers.size(),
             "the test's table is large enough");
    spec.relative_bias->table = &tables.at;
  }
  if (spec.mla) {
    spec.kv_heads = spec.heads;
    spec.head_dim = spec.mla->qk_nope_head_dim + spec.mla->qk_rope_head_dim;
    spec.v_head_dim = spec.mla->v_head_dim;
  }
  return spec;
}

// Distance to the brute force of what the row is chosen for, divided by the tolerance.
double Measure(const KernelRow& row, const AttentionSpec& spec) {
  const auto backend = BackendNamed(row.backend);
  const bool prefill = row.phase == AttentionPhase::kPrefill;
  const RequestPhase phase = prefill ? RequestPhase::kPrefill : RequestPhase::kDecode;
  std::vector<TestRequest> requests = {{phase, 0, 1, 20}, {phase, 30, 1, 9}, {phase, 200, 1, 140}};
  if (prefill && spec.kind == AttentionKind::kEncoder) {
    requests = {{phase, 0, 12}, {phase, 0, 33}};
  } else if (prefill) {
    requests = {{phase, 0, 12, 20}, {phase, 21, 33, 9}};
  }
  if (spec.custom_mask) AddMasks(spec.kind, 4, requests);
  if (spec.mla) {
    if (!prefill) {
      MlaCase mla(spec, requests, 1);
      return Distance(mla.RunLatent(*backend, 2), mla.Expected(true)) / 1e-5;
    }
    MlaCase mla(spec, {requests.back()}, 1);
    return Distance(mla.RunExpanded(*backend, 16, 2), mla.Expected(false)) / 1e-5;
  }
  const auto data = MakeData(spec, requests, 2);
  const bool encoder = spec.kind == AttentionKind::kEncoder;
  const auto expected = BruteForce(spec, encoder ? DType::kF32 : spec.kv_dtype, requests, data);
  const auto out = spec.kind == AttentionKind::kCross ? RunCross(*backend, spec, requests, data)
                                                      : RunLayer(*backend, spec, requests, data);
  return Distance(out, expected) / ToleranceOf(*backend, spec);
}

std::string Who(const KernelRow& row) {
  return std::string(row.backend) + "/" + std::string(row.kernel) + " " +
         std::string(NameOf(row.phase));
}

void ExpectOnly(const KernelRow& row, const AttentionSpec& spec, const MachineProfile& machine,
                std::string_view attribute) {
  const auto refusals = RefusalsOf(row, spec, machine);
  ASSERT_EQ(refusals.size(), 1u) << Who(row) << ": " << attribute;
  EXPECT_EQ(refusals[0].attribute, attribute) << Who(row);
  EXPECT_EQ(refusals[0].who, std::string(row.backend) + "/" + std::string(row.kernel));
}

// A declared value runs; taken out of the row, or never in it, it is refused.
template <typename T>
void CheckValues(const KernelRow& row, ValueSet<T> KernelRow::*member, std::string_view attribute,
                 const std::vector<T>& values, void (*set)(AttentionSpec&, T)) {
  for (const T value : values) {
    AttentionSpec spec = Base(row);
    set(spec, value);
    KernelRow without = row;
    (without.*member) = {};
    for (const T other : values) {
      if (other == value) continue;
      (without.*member).values[(without.*member).count++] = other;
      if ((without.*member).count == (without.*member).values.size()) break;
    }
    ExpectOnly(without, spec, Machine(), attribute);
    if ((row.*member).Accepts(value)) {
      EXPECT_TRUE(RefusalsOf(row, spec, Machine()).empty()) << Who(row) << ": " << attribute;
      EXPECT_LT(Measure(row, spec), 1)
          << Who(row) << ": " << attribute << ", value " << static_cast<int64_t>(value);
    } else {
      ExpectOnly(row, spec, Machine(), attribute);
    }
  }
}

TEST(Coverage, EveryFeatureOfEveryRow) {
  const Tables tables;
  const BackendTable table = BuiltinBackends(Kernels());
  ASSERT_FALSE(table.rows.empty());
  for (const KernelRow& row : table.rows) {
    ASSERT_TRUE(RefusalsOf(row, Base(row), Machine()).empty()) << Who(row);
    EXPECT_LT(Measure(row, Base(row)), 1) << Who(row);
    for (const FeatureRow& f : Features()) {
      const AttentionSpec spec = Realise(f.example(Base(row)), tables);
      ASSERT_EQ(RequiredFeatures(spec), static_cast<FeatureSet>(f.feature)) << f.name;
      ASSERT_FALSE(ProblemOf(spec).has_value()) << f.name;
      KernelRow without = row;
      without.features &= ~static_cast<FeatureSet>(f.feature);
      ExpectOnly(without, spec, Machine(), f.name);
      if (!Has(row.features, f.feature)) {
        ExpectOnly(row, spec, Machine(), f.name);
      } else if (NeedsPhase(spec, row.phase)) {
        EXPECT_TRUE(RefusalsOf(row, spec, Machine()).empty()) << Who(row) << ": " << f.name;
        EXPECT_LT(Measure(row, spec), 1) << Who(row) << ": " << f.name;
      }
    }
  }
}

// All pairs of features that one layer can have.
TEST(Coverage, EveryPairOfFeatures) {
  const Tables tables;
  int pairs = 0;
  for (const KernelRow& row : BuiltinBackends(Kernels()).rows) {
    for (const FeatureRow& a : Features()) {
      for (const FeatureRow& b : Features()) {
        if (a.feature >= b.feature) continue;
        const AttentionSpec spec = Realise(b.example(a.example(Base(row))), tables);
        if (RequiredFeatures(spec) != (a.feature | b.feature) || ProblemOf(spec).has_value())
          continue;
        if (!RefusalsOf(row, spec, Machine()).empty() || !NeedsPhase(spec, row.phase)) continue;
        EXPECT_LT(Measure(row, spec), 1) << Who(row) << ": " << a.name << " with " << b.name;
        ++pairs;
      }
    }
  }
  EXPECT_GT(pairs, 100);
}

TEST(Coverage, EveryValueOfEveryRow) {
  for (const KernelRow& row : BuiltinBackends(Kernels()).rows) {
    CheckValues<DType>(row, &KernelRow::kv_dtypes, "kv_dtype",
                       {DType::kF32, DType::kBF16, DType::kF16, DType::kF8E4M3, DType::kI8,
                        DType::kF4E2M1, DType::kF8E5M2},
                       [](AttentionSpec& s, DType v) { s.kv_dtype = v; });
    CheckValues<int32_t>(row, &KernelRow::page_tokens, "page_tokens", {16, 32, 64, 128, 256},
                         [](AttentionSpec& s, int32_t v) { s.page_tokens = v; });
    CheckValues<KvLayout>(row, &KernelRow::layouts, "kv_layout", {KvLayout::kNhd, KvLayout::kHnd},
                          [](AttentionSpec& s, KvLayout v) { s.kv_layout = v; });
    CheckValues<int64_t>(row, &KernelRow::head_dims, "head_dim", {1, 8, 33, 64, 80, 128, 256, 1024},
                         [](AttentionSpec& s, int64_t v) {
                           s.head_dim = s.v_head_dim = v;
                           // As models do: scores of ever wider heads would leave fp32's precision.
                           if (v > 256) s.scale = 1.0f / std::sqrt(static_cast<float>(v));
                         });
  }
}

// Latents have dtypes of their own.
TEST(Coverage, EveryLatentDType) {
  const Tables tables;
  for (const KernelRow& row : BuiltinBackends(Kernels()).rows) {
    if (!Has(row.features, Feature::kMla)) continue;
    for (const KvDType& kv : KvDTypes()) {
      AttentionSpec spec = Base(row);
      spec.mla = MlaGeometry{0, 24, 16, 8, 12};  // rows of 32
      spec = Realise(spec, tables);
      spec.kv_dtype = kv.dtype;
      if (row.latent_dtypes.Accepts(kv.dtype)) {
        EXPECT_TRUE(RefusalsOf(row, spec, Machine()).empty()) << Who(row) << ": " << kv.name;
        EXPECT_LT(Measure(row, spec), 1) << Who(row) << ": " << kv.name;
      } else {
        ExpectOnly(row, spec, Machine(), "kv_dtype");
      }
    }
  }
}

// Rows that do not exist in a dtype are refused with the dtypes in which they do.
TEST(Coverage, WidthsOfEveryDType) {
  for (const KernelRow& row : BuiltinBackends(Kernels()).rows) {
    for (const KvDType& kv : KvDTypes()) {
      for (const auto& [head_dim, v_head_dim] :
           std::vector<std::pair<int64_t, int64_t>>{{20, 20}, {48, 20}, {8, 48}, {48, 80}}) {
        AttentionSpec spec = Base(row);
        spec.head_dim = head_dim;
        spec.v_head_dim = v_head_dim;
        spec.kv_dtype = kv.dtype;
        const bool exists =
            kv.dtype != DType::kF4E2M1 || (head_dim % 16 == 0 && v_head_dim % 16 == 0);
        const auto refusals = RefusalsOf(row, spec, Machine());
        EXPECT_EQ(refusals.empty(), exists) << Who(row) << ": " << kv.name << " " << head_dim;
        if (exists) {
          EXPECT_LT(Measure(row, spec), 1) << Who(row) << ": " << kv.name << " " << head_dim;
          continue;
        }
        ExpectOnly(row, spec, Machine(), "kv_dtype");
        EXPECT_EQ(refusals[0].value, "nvfp4 (head_dim " + std::to_string(head_dim) +
                                         ", v_head_dim " + std::to_string(v_head_dim) + ")");
        EXPECT_EQ(refusals[0].supports, "{f32, bf16, fp16, fp8_e4m3, int8}");
      }
    }
  }
}

// At the limit of heads per kv head and just above it; above, the backend still serves the layer.
TEST(Coverage, MostHeadsPerKvHead) {
  for (const KernelRow& row : BuiltinBackends(Kernels()).rows) {
    AttentionSpec spec = Base(row);
    spec.kv_heads = 1;
    const int64_t most = row.most_heads_per_kv_head;
    for (const int64_t heads : {most > 0 ? most : 300, most + 1}) {
      spec.heads = heads;
      if (most > 0 && heads > most) {
        ExpectOnly(row, spec, Machine(), "heads per kv_head");
      } else {
        EXPECT_TRUE(RefusalsOf(row, spec, Machine()).empty()) << Who(row) << ": " << heads;
      }
      EXPECT_LT(Measure(row, spec), 1) << Who(row) << ": " << heads;
    }
  }
}

TEST(Coverage, EveryIsa) {
  for (KernelRow row : BuiltinBackends(Kernels()).rows) {
    EXPECT_TRUE(RefusalsOf(row, Base(row), Machine(row.isa)).empty());
    row.isa = Isa::kAvx512;
    ExpectOnly(row, Base(row), Machine(Isa::kAvx2), "isa");
    EXPECT_TRUE(RefusalsOf(row, Base(row), Machine(Isa::kAvx512)).empty());
    EXPECT_TRUE(RefusalsOf(row, Base(row), Machine(Isa::kAvx512Bf16Vnni)).empty());
  }
}

// A row that says nothing serves nobody: every attribute is refused.
TEST(Coverage, AnEmptyRowRefusesEverything) {
  AttentionSpec spec = Base();
  spec.kv_layout = KvLayout::kHnd;
  KernelRow row;
  row.backend = "EMPTY";
  row.kernel = "none";
  std::set<std::string> attributes;
  for (const Refusal& r : RefusalsOf(row, spec, Machine())) attributes.insert(r.attribute);
  EXPECT_EQ(attributes,
            (std::set<std::string>{"kv_dtype", "page_tokens", "kv_layout", "head_dim", "compute"}));
  // What an encoder does not cache does not matter.
  spec.kind = AttentionKind::kEncoder;
  attributes.clear();
  for (const Refusal& r : RefusalsOf(row, spec, Machine())) attributes.insert(r.attribute);
  EXPECT_EQ(attributes, (std::set<std::string>{"head_dim", "encoder", "compute"}));
}

}  // namespace
}  // namespace tenon::test
