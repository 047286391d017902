// Damaged and incomplete Hugging Face checkpoints: each refused by its own kind, with the fix.
#include <gtest/gtest.h>

#include "checkpoint/fixtures.h"

namespace tenon {
namespace {

using test::Entry;
using test::ExpectRefused;
using test::SafetensorsBytes;
using test::TempDir;

constexpr std::string_view kPointer =
    "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 4976698672\n";
constexpr std::string_view kIndex = "model.safetensors.index.json";

// A directory with config.json and `data` as model.safetensors.
struct Model {
  explicit Model(std::string_view data) {
    dir.Write("config.json", "{}");
    dir.Write("model.safetensors", data);
  }
  TempDir dir;
};

void ExpectBadHeader(std::string_view header, std::initializer_list<std::string_view> words,
                     size_t data_bytes = 64) {
  const Model model(SafetensorsBytes(header, data_bytes));
  ExpectRefused(model.dir.path(), words);
}

TEST(HfDamage, NoSuchPath) {
  const auto opened = Checkpoint::Open("/nonexistent/model");
  EXPECT_EQ(opened.code(), StatusCode::kNotFound);
  EXPECT_NE(opened.message().find("/nonexistent/model"), std::string::npos);
  EXPECT_EQ(Checkpoint::Open("").code(), StatusCode::kUsage);
}

TEST(HfDamage, EmptyAndUnknownDirectories) {
  TempDir dir;
  ExpectRefused(dir.path(), {"is empty", "config.json"});
  dir.Write("README.md", "hello");
  ExpectRefused(dir.path(), {"README.md", "fix:", "config.json"});
  std::filesystem::create_directory(dir / "snapshots");
  ExpectRefused(dir.path(), {"snapshots/"});
}

TEST(HfDamage, DirectoryOfGgufFiles) {
  TempDir dir;
  dir.Write("model-q4.gguf", "GGUF");
  ExpectRefused(dir.path(), {"model-q4.gguf", "give the path"});
}

TEST(HfDamage, LfsPointers) {
  const Model model(kPointer);
  ExpectRefused(model.dir.path(),
                {"model.safetensors", "Git LFS pointer", "4976698672", "git lfs pull"});
  TempDir dir;
  ExpectRefused(dir.Write("model.gguf", kPointer), {"Git LFS pointer", "git lfs pull"});
  dir.Write("config.json", kPointer);
  ExpectRefused(dir.path(), {"config.json", "Git LFS pointer"});
  dir.Write("config.json", "{}");
  dir.Write(kIndex, kPointer);
  ExpectRefused(dir.path(), {kIndex, "Git LFS pointer"});
  TempDir side;
  side.Write("tokenizer.json", kPointer);
  const auto read = test::OpenOrDie(side.path())->ReadSideFile("tokenizer.json");
  EXPECT_EQ(read.code(), StatusCode::kRefused);
  EXPECT_NE(read.message().find("git lfs pull"), std::string::npos);
}

TEST(HfDamage, EmptyFiles) {
  const Model model("");
  ExpectRefused(model.dir.path(), {"model.safetensors", "empty (0 bytes)", "download"});
  TempDir dir;
  ExpectRefused(dir.Write("x.gguf", ""), {"x.gguf", "empty"});
  dir.Write("config.json", "");
  ExpectRefused(dir.path(), {"config.json", "empty"});
}

TEST(HfDamage, Pickles) {
  TempDir dir;
  dir.Write("config.json", "{}");
  dir.Write("pytorch_model.bin", "PK\x03\x04");
  ExpectRefused(dir.path(), {"pickle", "pytorch_model.bin", "safetensors", "save_pretrained"});
  TempDir shards;
  shards.Write("pytorch_model-00001-of-00002.bin", "PK\x03\x04");
  ExpectRefused(shards.path(), {"pickle", "pytorch_model-00001-of-00002.bin"});
  const Model renamed("PK\x03\x04" + std::string(100, '\0'));
  ExpectRefused(renamed.dir.path(), {"PyTorch pickle", "convert"});
  TempDir files;
  ExpectRefused(files.Write("old.bin", std::string("\x80\x02") + "rest"), {"PyTorch pickle"});
}

TEST(HfDamage, OtherFrameworks) {
  TempDir dir;
  dir.Write("config.json", "{}");
  dir.Write("tf_model.h5", "x");
  ExpectRefused(dir.path(), {"TensorFlow", "tf_model.h5"});
}

TEST(HfDamage, AdapterWithoutBase) {
  TempDir dir;
  dir.Write("adapter_config.json", R"({"base_model_name_or_path": "org/base-7b"})");
  dir.Write("adapter_model.safetensors", SafetensorsBytes("{}", 0));
  dir.Write("tokenizer.json", "{}");
  ExpectRefused(dir.path(), {"adapter without its base", "org/base-7b"});
  TempDir weights_only;
  weights_only.Write("adapter_model.safetensors", SafetensorsBytes("{}", 0));
  ExpectRefused(weights_only.path(), {"adapter without its base"});
}

TEST(HfDamage, AdapterBesideItsBaseIsFine) {
  TempDir dir;
  test::CopyData("goldens/llama", dir);
  dir.Write("adapter_config.json", "{}");
  EXPECT_TRUE(Checkpoint::Open(dir.path()).ok());
}

TEST(HfDamage, MissingShards) {
  TempDir dir;
  test::CopyData("goldens/llama_tied_fp32_sharded", dir);
  std::filesystem::remove(dir / "model-00002-of-00004.safetensors");
  ExpectRefused(dir.path(), {"1 of 4", kIndex, "model-00002-of-00004.safetensors", "download"});
  std::filesystem::remove(dir / std::string(kIndex));
  ExpectRefused(dir.path(), {"1 of 4", "model-00002-of-00004.safetensors"});
}

TEST(HfDamage, IndexAlone) {
  TempDir dir;
  dir.Write(kIndex, R"({"weight_map": {"a": "model-00001-of-00001.safetensors"}})");
  ExpectRefused(dir.path(), {"missing", "model-00001-of-00001.safetensors"});
}

TEST(HfDamage, BrokenIndexes) {
  TempDir dir;
  dir.Write("config.json", "{}");
  const auto expect = [&](std::string_view text, std::initializer_list<std::string_view> words) {
    dir.Write(kIndex, text);
    ExpectRefused(dir.path(), words);
  };
  expect("{", {kIndex, "not a JSON object"});
  expect("[]", {kIndex, "not a JSON object"});
  expect("{}", {"weight_map"});
  expect(R"({"weight_map": []})", {"weight_map"});
  expect(R"({"weight_map": {}})", {"weight_map", "no tensor"});
  expect(R"({"weight_map": {"a": 3}})", {"tensor \"a\"", "3"});
  expect(R"({"weight_map": {"a": "../../etc/passwd"}})", {"tensor \"a\"", "beside it"});
  expect(R"({"weight_map": {"a": "x", "a": "y"}})", {"tensor \"a\"", "twice"});
  expect("", {"empty"});
}

TEST(HfDamage, IndexAndShardsDisagree) {
  TempDir dir;
  dir.Write("one.safetensors", SafetensorsBytes("{" + Entry("a", "U8", "[4]", "0", "4") + "}", 4));
  dir.Write("two.safetensors", SafetensorsBytes("{" + Entry("b", "U8", "[4]", "0", "4") + "}", 4));
  const auto index = [&](std::string_view map) {
    dir.Write(kIndex, "{\"weight_map\": " + std::string(map) + "}");
  };
  index(R"({"a": "one.safetensors", "b": "two.safetensors"})");
  EXPECT_TRUE(Checkpoint::Open(dir.path()).ok());
  index(R"({"a": "one.safetensors", "b": "two.safetensors", "c": "two.safetensors"})");
  ExpectRefused(dir.path(), {"tensor \"c\"", "absent", "two.safetensors"});
  index(R"({"b": "one.safetensors", "a": "two.safetensors"})");
  ExpectRefused(dir.path(), {"lists here", "one.safetensors", "two.safetensors"});
  dir.Write("two.safetensors", SafetensorsBytes("{" + Entry("a", "U8", "[4]", "0", "4") + "}", 4));
  index(R"({"a": "one.safetensors", "b": "two.safetensors"})");
  ExpectRefused(dir.path(), {"tensor \"a\"", "one.safetensors", "two.safetensors", "is also in"});
}

TEST(HfDamage, WeightsUnderAnotherName) {
  TempDir dir;
  dir.Write("config.json", "{}");
  dir.Write("consolidated.safetensors", SafetensorsBytes("{}", 0));
  ExpectRefused(dir.path(), {"consolidated.safetensors", "rename"});
}

TEST(HfDamage, LinkToNothing) {
  TempDir dir;
  dir.Write("config.json", "{}");
  std::filesystem::create_symlink(dir / "blob", dir / "model.safetensors");
  ExpectRefused(dir.path(), {"model.safetensors", "link to nothing", "download"});
}

TEST(HfDamage, TruncatedSafetensors) {
  const std::string whole = *ReadFile(test::DataPath("goldens/llama/model.safetensors"));
  for (const size_t size :
       {whole.size() - 1, whole.size() / 2, size_t{2376}, size_t{2000}, size_t{9}}) {
    const Model model(whole.substr(0, size));
    ExpectRefused(model.dir.path(), {"model.safetensors", "truncated", "download it again"});
  }
  const Model model(whole.substr(0, 5));
  ExpectRefused(model.dir.path(), {"truncated"});
}

TEST(HfDamage, HeaderLength) {
  const Model too_long(test::Raw(uint64_t{100'000'001}) + "{" + std::string(100, ' '));
  ExpectRefused(too_long.dir.path(), {"header length = 100000001", "100000000"});
  const Model huge(test::Raw(~uint64_t{0}) + "{}");
  ExpectRefused(huge.dir.path(), {"header length = 18446744073709551615"});
  const Model beyond(test::Raw(uint64_t{1000}) + "{}");
  ExpectRefused(beyond.dir.path(), {"truncated", "10 bytes", "1008"});
}

TEST(HfDamage, HeaderJson) {
  ExpectBadHeader("{\"a\":", {"not a JSON object"});
  ExpectBadHeader("{\"a\":1}", {"tensor \"a\"", "no JSON object"});
  ExpectBadHeader("{\"a\":{}}", {"tensor \"a\"", "no dtype"});
  ExpectBadHeader(R"({"a":{"dtype":"F32"}})", {"tensor \"a\"", "no shape"});
  ExpectBadHeader(R"({"a":{"dtype":"F32","shape":[1]}})", {"tensor \"a\"", "data_offsets"});
  ExpectBadHeader(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", {"data_offsets"});
  ExpectBadHeader("{" + Entry("a", "F32", "[1]", "\"0\"", "4") + "}", {"data_offsets", "\"0\""});
  ExpectBadHeader("{" + Entry("a", "F32", "[1]", "-4", "0") + "}", {"data_offsets", "-4"});
  ExpectBadHeader("{" + Entry("a", "F32", "[1.5]", "0", "4") + "}", {"shape", "1.5"});
  ExpectBadHeader("{" + Entry("a", "F32", "[-1]", "0", "4") + "}", {"shape", "-1"});
  ExpectBadHeader(std::string("{\"a\":") + std::string(3000, '[') + "}", {"not a JSON object"});
}

TEST(HfDamage, Ranges) {
  ExpectBadHeader("{" + Entry("a", "F32", "[4]", "16", "0") + "}", {"\"a\"", "[16, 0]", "before"});
  ExpectBadHeader("{" + Entry("a", "F32", "[4]", "60", "76") + "}",
                  {"\"a\"", "[60, 76]", "64 bytes of data", "truncated"});
  ExpectBadHeader("{" + Entry("a", "F32", "[4]", "0", "18446744073709551615") + "}",
                  {"\"a\"", "18446744073709551615"});
  ExpectBadHeader("{" + Entry("a", "F32", "[4]", "0", "15") + "}", {"\"a\"", "15 bytes", "16"});
  ExpectBadHeader("{" + Entry("a", "BF16", "[3, 5]", "0", "32") + "}", {"BF16 [3, 5]", "30"});
}

TEST(HfDamage, Shapes) {
  ExpectBadHeader("{" + Entry("a", "F32", "[4611686018427387904, 4]", "0", "0") + "}",
                  {"shape", "2^63"});
  // A zero must not hide an overflow of the other dimensions.
  ExpectBadHeader("{" + Entry("a", "F32", "[4611686018427387904, 8, 0]", "0", "0") + "}",
                  {"shape", "2^63"});
  ExpectBadHeader("{" + Entry("a", "F32", "[1, 1, 1, 1, 1, 1]", "0", "4") + "}",
                  {"6 dimensions", "at most 5"});
}

TEST(HfDamage, RepeatedTensor) {
  ExpectBadHeader(
      "{" + Entry("a", "U8", "[4]", "0", "4") + "," + Entry("a", "U8", "[4]", "0", "4") + "}",
      {"tensor \"a\"", "twice"});
}

TEST(HfDamage, EmptyTensorsAndScalarsAreLegal) {
  const Model model(SafetensorsBytes("{" + Entry("zero", "F32", "[0, 7]", "4", "4") + "," +
                                         Entry("one", "F32", "[]", "0", "4") + "}",
                                     4));
  const auto checkpoint = test::OpenOrDie(model.dir.path());
  EXPECT_EQ(checkpoint->FindTensor("zero")->bytes, 0);
  EXPECT_EQ(checkpoint->FindTensor("one")->shape.rank(), 0);
  EXPECT_EQ(checkpoint->MapTensor(*checkpoint->FindTensor("one"))->bytes(), 4);
}

TEST(HfDamage, UnknownTypeIsListedAndRefusedOnlyWhenUsed) {
  const Model model(SafetensorsBytes(
      "{" + Entry("a", "F4", "[4, 8]", "0", "16") + "," + Entry("b", "U8", "[4]", "16", "20") + "}",
      20));
  const auto checkpoint = test::OpenOrDie(model.dir.path());
  const StoredTensor* tensor = checkpoint->FindTensor("a");
  ASSERT_NE(tensor, nullptr);
  EXPECT_FALSE(tensor->supported);
  EXPECT_EQ(tensor->type_name, "F4");
  const auto view = checkpoint->MapTensor(*tensor);
  EXPECT_EQ(view.code(), StatusCode::kRefused);
  for (const char* word : {"\"a\"", "F4", "supported: F64, F32, BF16"}) {
    EXPECT_NE(view.message().find(word), std::string::npos) << view.message();
  }
  EXPECT_TRUE(checkpoint->MapTensor(*checkpoint->FindTensor("b")).ok());
}

TEST(HfDamage, NeitherKindOfFile) {
  TempDir dir;
  ExpectRefused(dir.Write("notes.txt", "just some text, no model"), {"no kind known", ".gguf"});
  ExpectRefused(dir.Write("config.json", "{\"a\": 1}"), {"JSON", "directory"});
  ExpectRefused(dir.Write("m.gguf", "<!DOCTYPE html><html>"), {"HTML page", "download"});
  ExpectRefused(dir.Write("old.bin", "tjgg\1\0\0\0"), {"before GGUF"});
  const Model page("  <html><body>404</body></html>");
  ExpectRefused(page.dir.path(), {"HTML page", "not a safetensors file"});
  const Model gguf("GGUF" + std::string(20, '\0'));
  ExpectRefused(gguf.dir.path(), {"is a GGUF file"});
}

TEST(HfDamage, BrokenConfig) {
  TempDir dir;
  dir.Write("config.json", "{\"a\": }");
  ExpectRefused(dir.path(), {"config.json", "not valid JSON"});
  dir.Write("config.json", "[1]");
  ExpectRefused(dir.path(), {"config.json", "array", "object"});
}

TEST(HfDamage, HostileNamesArePrintedShortAndEscaped) {
  const std::string name(5000, 'x');
  const Model model(
      SafetensorsBytes("{" + Entry(name + "\\u0007", "F32", "[4]", "9", "0") + "}", 64));
  const auto opened = Checkpoint::Open(model.dir.path());
  ASSERT_FALSE(opened.ok());
  EXPECT_LT(opened.message().size(), 700u);
  EXPECT_NE(opened.message().find("5001 bytes"), std::string::npos);
}

}  // namespace
}  // namespace tenon
