// The decoders of blocks/ and of the plain types against ggml's own, bit for bit
// (goldens_quant: quantised by ggml, dequantised by gguf-py and ggml).
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "support/paths.h"
#include "tenon/checkpoint/checkpoint.h"
#include "tenon/numeric/decode.h"

namespace tenon {
namespace {

TensorView Tensor(const Checkpoint& checkpoint, const char* name) {
  const StoredTensor* tensor = checkpoint.FindTensor(name);
  TN_CHECK(tensor != nullptr, name);
  return *checkpoint.MapTensor(*tensor);
}

class BlocksTest : public testing::TestWithParam<const char*> {};

TEST_P(BlocksTest, DecodesBitForBit) {
  const std::string type = GetParam();
  const auto opened = Checkpoint::Open(test::DataPath("goldens_quant/" + type + ".safetensors"));
  ASSERT_TRUE(opened.ok()) << opened.message();
  const DType dtype = *ParseDType(type);
  for (const auto& [raw_name, expected_name] :
       {std::pair("raw", "dequant"), std::pair("raw_random", "dequant_random")}) {
    const TensorView raw = Tensor(**opened, raw_name);            // u8 [4, row bytes]
    const TensorView expected = Tensor(**opened, expected_name);  // f32 [4, 768]
    const int64_t columns = expected.dim(1);
    ASSERT_EQ(RowBytes(dtype, columns), raw.dim(1));
    std::vector<float> out(static_cast<size_t>(columns));
    for (int64_t row = 0; row < expected.dim(0); ++row) {
      DecoderOf(dtype)(raw.data() + row * raw.row_bytes(), columns, out.data());
      EXPECT_EQ(std::memcmp(out.data(), expected.data() + row * expected.row_bytes(),
                            out.size() * sizeof(float)),
                0)
          << type << " " << raw_name << " row " << row;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, BlocksTest,
                         testing::Values("q4_0", "q4_1", "q8_0", "q6_k", "q4_k", "f16", "bf16"),
                         [](const auto& format) { return std::string(format.param); });

}  // namespace
}  // namespace tenon
