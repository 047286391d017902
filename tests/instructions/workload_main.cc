// Fixed pieces of work of single kernels, for counting instructions (count.py); the kernel table is
// TENON_TEST_ISA's. `kernel_workload` lists the names, `kernel_workload NAME` runs one. Only what
// Measured calls is counted: inputs are made before.
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/random_data.h"

// A name that valgrind can find; not inlined, so that it has a call to find.
extern "C" [[gnu::noinline]] void Measured(const std::function<void()>& work) { work(); }

namespace tenon {
namespace {

using test::Floats;

struct Workload {
  std::string name;
  std::function<void()> run;
};

void Matmul(DType dtype, int64_t tokens) {
  constexpr int64_t kRows = 64;
  constexpr int64_t kCols = 1024;
  const test::Weights w = test::RandomWeights(dtype, kRows, kCols, 1);
  const std::vector<float> x = Floats(tokens * kCols, 2);
  std::vector<float> y(test::At(tokens * kRows));
  std::vector<float> scratch(test::At(MatmulScratchFloats(kCols)));
  MatmulKernelArgs args;
  args.w = w.data();
  args.row_bytes = w.row_bytes;
  args.cols = kCols;
  args.x = x.data();
  args.x_stride = kCols;
  args.num_tokens = tokens;
  args.y = y.data();
  args.y_stride = kRows;
  Measured([&] { test::Kernels().matmul.For(dtype).run(args, 0, kRows, scratch.data()); });
}

constexpr int64_t kWidth = 4096;

void RmsNorm() {
  const std::vector<float> x = Floats(kWidth, 1);
  const std::vector<float> weight = Floats(kWidth, 2);
  std::vector<float> y(x.size());
  NormKernelArgs args;
  args.weight = weight.data();
  args.eps = 1e-5f;
  args.width = kWidth;
  Measured([&] { test::Kernels().norm.rms.run(args, x.data(), y.data()); });
}

void GatedSilu() {
  const std::vector<float> gate = Floats(kWidth, 1, 4);
  const std::vector<float> up = Floats(kWidth, 2);
  std::vector<float> y(gate.size());
  Measured([&] {
    test::Kernels().elementwise.gated_activate.run(Activation::kSilu, gate.data(), up.data(),
                                                   y.data(), kWidth);
  });
}

void Softmax() {
  const std::vector<float> x = Floats(kWidth, 1, 4);
  std::vector<float> y(x.size());
  Measured([&] { test::Kernels().elementwise.softmax.run(x.data(), y.data(), kWidth); });
}

void RotateHalf() {
  constexpr int64_t kHead = 128;
  const std::vector<float> cos_sin = Floats(kHead, 1);
  const std::vector<float> x = Floats(kWidth, 2);
  std::vector<float> y(x.size());
  Measured([&] {
    for (int64_t at = 0; at < kWidth; at += kHead) {
      test::Kernels().rope.rotate_half.run(cos_sin.data(), kHead / 2, x.data() + at, y.data() + at,
                                           kHead);
    }
  });
}

// `rows` queries of one key/value head of two query heads, 256 keys that lie densely.
void Attention(int64_t rows) {
  constexpr int64_t kKeys = 256;
  constexpr int64_t kHead = 64;
  constexpr int64_t kGroup = 2;
  const std::vector<float> k = Floats(kKeys * kHead, 1);
  const std::vector<float> v = Floats(kKeys * kHead, 2);
  const std::vector<float> q = Floats(rows * kGroup * kHead, 3);
  std::vector<float> state(test::At(rows * kGroup * StateFloats(kHead)));
  std::vector<float> scratch(test::At(OnlineScratchFloats(kHead, kHead)));
  ScoreRules rules;
  rules.scale = 0.125f;
  rules.causal = true;
  AttendArgs args;
  args.source.k = reinterpret_cast<const std::byte*>(k.data());
  args.source.v = reinterpret_cast<const std::byte*>(v.data());
  args.source.k_slot_stride = args.source.v_slot_stride = kHead * int64_t{sizeof(float)};
  args.rules = &rules;
  args.group = kGroup;
  args.k_width = args.v_width = kHead;
  args.rows = rows;
  args.position = kKeys - rows;
  args.key_end = kKeys;
  args.q = q.data();
  args.q_row_stride = kGroup * kHead;
  args.q_head_stride = kHead;
  const AttendState out{state.data(), kGroup * StateFloats(kHead), StateFloats(kHead)};
  Measured([&] { test::Kernels().attention.online(args, out, scratch.data()); });
}

std::vector<Workload> Workloads() {
  std::vector<Workload> list;
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kQ4_0, DType::kQ4_1,
                            DType::kQ8_0, DType::kQ4_K, DType::kQ6_K}) {
    for (const int64_t tokens : {1, 8}) {
      list.push_back({"matmul_" + std::string(NameOf(dtype)) + "_" + std::to_string(tokens),
                      [=] { Matmul(dtype, tokens); }});
    }
  }
  list.push_back({"rms_norm", RmsNorm});
  list.push_back({"gated_silu", GatedSilu});
  list.push_back({"softmax", Softmax});
  list.push_back({"rotate_half", RotateHalf});
  for (const int64_t rows : {1, 8}) {
    list.push_back({"attention_" + std::to_string(rows), [=] { Attention(rows); }});
  }
  return list;
}

}  // namespace
}  // namespace tenon

int main(int argc, char** argv) {
  for (const tenon::Workload& workload : tenon::Workloads()) {
    if (argc < 2) {
      std::printf("%s\n", workload.name.c_str());
    } else if (workload.name == argv[1]) {
      workload.run();
      return 0;
    }
  }
  return argc < 2 ? 0 : 2;
}
