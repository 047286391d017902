#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstdio>
#include <set>

#include "config/test_json.h"
#include "tenon/base/file.h"
#include "tenon/base/text.h"
#include "tenon/config/option_table.h"

namespace tenon {
namespace {

using test::Contains;
using test::J;

OptionTable Table() { return OptionTable({.attention_backends = {"NATIVE", "TRTLLM", "VANILLA"}}); }

// A file that is gone when the test is over.
class TempFile {
 public:
  explicit TempFile(const std::string& text)
      : path_(testing::TempDir() + "tenon_options_" +
              std::to_string(reinterpret_cast<uintptr_t>(this)) + ".yaml") {
    EXPECT_TRUE(WriteFile(path_, text).ok());
  }
  ~TempFile() { std::remove(path_.c_str()); }
  TempFile(const TempFile&) = delete;
  TempFile& operator=(const TempFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string ErrorOf(const OptionInputs& inputs) {
  const Result<EngineOptions> options = Table().Resolve(inputs);
  EXPECT_EQ(options.code(), StatusCode::kUsage);
  return options.message();
}

TEST(OptionTable, RowsAreWellFormed) {
  const OptionTable table = Table();
  std::set<std::string> names;
  for (const OptionRow& row : table.rows()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    if (*row.short_name != '\0') {
      EXPECT_TRUE(names.insert(row.short_name).second) << row.name;
    }
    EXPECT_NE(std::string(row.help), "") << row.name;
    EXPECT_NE(row.commands, 0u) << row.name;
    EXPECT_EQ(table.Find(row.name), &row);
    EXPECT_EQ(std::string(row.name), ToLowerAscii(row.name));
    // The kind fits the field.
    const bool numeric = row.kind == OptionKind::kInt || row.kind == OptionKind::kReal ||
                         row.kind == OptionKind::kSize;
    EXPECT_EQ(numeric, row.field.index() >= 1 && row.field.index() <= 3) << row.name;
    EXPECT_EQ(row.kind == OptionKind::kFlag, row.field.index() == 0) << row.name;
    EXPECT_EQ(row.kind == OptionKind::kList, row.field.index() == 5) << row.name;
  }
}

TEST(OptionTable, EngineDefaults) {
  const EngineOptions options = Table().Defaults();
  EXPECT_EQ(options.threads.value, std::nullopt);
  EXPECT_EQ(options.compute.value, "auto");
  EXPECT_EQ(options.attn_backend.value, "auto");
  EXPECT_EQ(options.temp.value, 0);
  EXPECT_EQ(options.top_p.value, 1);
  EXPECT_EQ(options.top_k.value, 0);
  EXPECT_EQ(options.repetition_penalty.value, 1);
  EXPECT_EQ(options.max_new_tokens.value, std::nullopt);
  EXPECT_TRUE(options.stop.value.empty());
  EXPECT_FALSE(options.threads.origin.IsExplicit());
  EXPECT_EQ(options.threads.origin.Text(), "engine default");
}

TEST(Resolve, EverySourceWithItsOrigin) {
  const TempFile file(
      "# comment\nthreads: 4\nkv-dtype: bf16\nmemory: 8G\nstop: [\"\\n\", END]\nseed: ~\n");
  const Result<EngineOptions> options = Table().Resolve(
      {.command = kRun,
       .command_line =
           {{"config", file.path()}, {"threads", "2"}, {"attn-backend", "vanilla"}, {"n", "7"}},
       .environment = {
           {"TENON_COMPUTE", "FP32"}, {"TENON_MEMORY", "1GiB"}, {"TENON_THREADS", "3"}}});
  ASSERT_TRUE(options.ok()) << options.message();
  EXPECT_EQ(options->threads.value, 2);
  EXPECT_EQ(options->threads.origin, (Origin{Origin::Kind::kUser, "--threads"}));
  EXPECT_EQ(options->attn_backend.value, "VANILLA");  // the listed spelling
  EXPECT_EQ(options->max_new_tokens.value, 7);
  EXPECT_EQ(options->max_new_tokens.origin.Text(), "--max-new-tokens");
  EXPECT_EQ(options->compute.value, "fp32");
  EXPECT_EQ(options->compute.origin, (Origin{Origin::Kind::kEnvironment, "TENON_COMPUTE"}));
  EXPECT_EQ(options->memory.value, int64_t{1} << 30);
  EXPECT_EQ(options->kv_dtype.value, "bf16");
  EXPECT_EQ(options->kv_dtype.origin,
            (Origin{Origin::Kind::kConfigFile, file.path() + ": kv-dtype"}));
  EXPECT_EQ(options->stop.value, (std::vector<std::string>{"\n", "END"}));
  EXPECT_EQ(options->seed.value, std::nullopt);
  EXPECT_FALSE(options->seed.origin.IsExplicit());  // null: not written
}

TEST(Resolve, AutoCanBeAskedForAndIsThenSet) {
  const TempFile file("max-seq-len: 100\n");
  const Result<EngineOptions> options = Table().Resolve(
      {.command_line = {{"max-seq-len", "auto"}}, .environment = {{"TENON_CONFIG", file.path()}}});
  ASSERT_TRUE(options.ok()) << options.message();
  EXPECT_EQ(options->max_seq_len.value, std::nullopt);
  EXPECT_EQ(options->max_seq_len.origin.kind, Origin::Kind::kUser);
}

TEST(Resolve, RepeatedOptions) {
  const Result<EngineOptions> options =
      Table().Resolve({.command_line = {{"threads", "2"},
                                        {"threads", "5"},
                                        {"stop", "a,b"},
                                        {"stop", "c"},
                                        {"allow-downgrade", "attention.window, kv.dtype"},
                                        {"allow-downgrade", "x"}},
                       .environment = {{"TENON_ALLOW_DOWNGRADE", "lost"}}});
  ASSERT_TRUE(options.ok()) << options.message();
  EXPECT_EQ(options->threads.value, 5);
  EXPECT_EQ(options->stop.value, (std::vector<std::string>{"a,b", "c"}));
  EXPECT_EQ(options->allow_downgrade.value,
            (std::vector<std::string>{"attention.window", "kv.dtype", "x"}));
}

TEST(Resolve, UnknownNamesComeWithNearOnes) {
  EXPECT_EQ(ErrorOf({.command_line = {{"thread", "2"}}}),
            "unknown option --thread, nearest: --threads; fix: see --help");
  EXPECT_EQ(ErrorOf({.environment = {{"TENON_THREAD", "2"}}}),
            "unknown environment variable TENON_THREAD, nearest: TENON_THREADS; fix: correct or "
            "unset it");
  const TempFile file("x: 1\nkv_dtype: bf16\n");
  const std::string text = ErrorOf({.command_line = {{"config", file.path()}}});
  EXPECT_TRUE(Contains(text, "2 problems with options")) << text;
  EXPECT_TRUE(Contains(text, file.path() + " line 2: unknown option 'kv_dtype', nearest: kv-dtype"))
      << text;
  // Short names are for the command line.
  const TempFile short_name("n: 1\n");
  EXPECT_TRUE(
      Contains(ErrorOf({.command_line = {{"config", short_name.path()}}}), "unknown option 'n'"));
}

TEST(Resolve, OptionsOfOtherCommands) {
  EXPECT_EQ(ErrorOf({.command = kExplain, .command_line = {{"temp", "1"}}}),
            "--temp is no option of explain, it is one of run; fix: remove it");
  // A file and the environment serve several commands.
  EXPECT_TRUE(Table().Resolve({.command = kExplain, .environment = {{"TENON_TEMP", "1"}}}).ok());
}

TEST(Resolve, BadValuesNameValueAllowedAndOrigin) {
  const std::vector<std::tuple<const char*, const char*, const char*>> cases = {
      {"threads", "many", "threads = 'many', must be 1 .. 1024 | auto; set by --threads; fix:"},
      {"threads", "0", "must be 1 .. 1024 | auto"},
      {"threads", "4x", "threads = '4x'"},
      {"threads", "", "threads = ''"},
      {"threads", "9223372036854775808", "threads = '9223372036854775808'"},
      {"temp", "nan", "temp = 'nan', must be 0 .. 100"},
      {"temp", "inf", "temp = 'inf'"},
      {"top-p", "1.01", "top-p = '1.01', must be 0 .. 1"},
      {"seed", "-1", "seed = '-1', must be >= 0 | random"},
      {"page-tokens", "48", "page-tokens = '48', must be auto | 16 | 32 | 64 | 128 | 256"},
      {"attn-backend", "FLASH", "must be auto | NATIVE | TRTLLM | VANILLA; set by --attn-backend"},
      {"isa", "sse",
       "must be auto | reference | baseline | avx2 | avx512 | avx512_bf16_vnni | "
       "amx"},
      {"memory", "8X", "memory = '8X', must be a size (8G, 512MiB) | auto"},
      {"memory", "0", "memory = '0'"},
      {"stop", "", "stop = '', must be a text that is not empty"},
  };
  for (const auto& [name, value, message] : cases) {
    const std::string text = ErrorOf({.command_line = {{name, value}}});
    EXPECT_TRUE(Contains(text, message)) << text;
    EXPECT_FALSE(Contains(text, "problems")) << text;
  }
  EXPECT_TRUE(Contains(ErrorOf({.command_line = {{"json", "perhaps"}}}),
                       "json = 'perhaps', must be true | false"));
}

// A plugin may bring a name that the table does not know: then the plan checks it.
TEST(Resolve, BackendsOfPlugins) {
  const auto with = [](std::vector<OptionSetting> settings) {
    return Table().Resolve({.command = kRun, .command_line = std::move(settings)});
  };
  EXPECT_FALSE(with({{"attn-backend", "MINE"}}).ok());
  for (const bool swapped : {false, true}) {
    std::vector<OptionSetting> settings = {{"attn-backend", "MINE"},
                                           {"custom-module-dirs", "a.so,b"}};
    if (swapped) std::swap(settings[0], settings[1]);
    const auto options = with(settings);
    ASSERT_TRUE(options.ok()) << options.message();
    EXPECT_EQ(options->attn_backend.value, "MINE");
    EXPECT_EQ(options->custom_module_dirs.value, (std::vector<std::string>{"a.so", "b"}));
  }
}

TEST(Resolve, HostileFiles) {
  for (const auto& [yaml, message] : std::vector<std::pair<std::string, const char*>>{
           {"threads: [1, 2]\n", "line 1: threads takes one value, not a list"},
           {"threads: {a: 1}\n", "line 1: the value of threads must be one value or a list"},
           {"stop: [[a]]\n", "the value of stop must be one value or a list of values"},
           {"threads: 1\ntop-k: 1\nthreads: 2\n", "line 3: threads is already set in line 1"},
           {"- threads\n", "must be lines of `name: value`"},
           {"threads: [1\n", "not valid YAML"},
           {"config: other.yaml\n", "line 1: a config file names no other"},
           {"[a]: 1\n", "line 1: a name must be plain text"},
           {std::string(100000, '['), "not valid YAML"},
           {"stop: [\"\"]\n", "stop = ''"}}) {
    const TempFile file(yaml);
    const std::string text = ErrorOf({.command_line = {{"config", file.path()}}});
    EXPECT_TRUE(Contains(text, message)) << text;
    EXPECT_TRUE(Contains(text, file.path())) << text;
    EXPECT_FALSE(Contains(text, "problems")) << text;
  }
  EXPECT_TRUE(
      Contains(ErrorOf({.environment = {{"TENON_CONFIG", "/nowhere/x.yaml"}}}), "TENON_CONFIG: "));
  const TempFile empty("");
  EXPECT_TRUE(Table().Resolve({.command_line = {{"config", empty.path()}}}).ok());
}

TEST(Resolve, AllProblemsAtOnce) {
  const TempFile file("thread: 1\n");
  const std::string text = ErrorOf({.command_line = {{"config", file.path()}, {"temp", "x"}},
                                    .environment = {{"TENON_TOP_K", "-1"}}});
  EXPECT_TRUE(Contains(text, "3 problems with options:\n  temp = 'x'")) << text;
  EXPECT_TRUE(Contains(text, "\n  top-k = '-1'")) << text;
  EXPECT_TRUE(Contains(text, "unknown option 'thread'")) << text;
}

TEST(Offer, ModelDefaultsYieldToExplicitValues) {
  const OptionTable table = Table();
  EngineOptions options = *table.Resolve({.command_line = {{"kv-dtype", "bf16"}}});
  const OptionDefault wishes[] = {{"kv-dtype", "f32", "its keys overflow"},
                                  {"compute", "fp32", "its activations overflow"}};
  ASSERT_TRUE(table.OfferModelDefaults(wishes, options).ok());
  EXPECT_EQ(options.kv_dtype.value, "bf16");
  EXPECT_EQ(options.compute.value, "fp32");
  EXPECT_EQ(options.compute.origin,
            (Origin{Origin::Kind::kModelDefault, "model default: its activations overflow"}));
  const OptionDefault wrong[] = {{"no-such", "1", ""}};
  EXPECT_EQ(table.OfferModelDefaults(wrong, options).code(), StatusCode::kInternal);
}

EngineOptions WithGeneration(const char* file, const OptionInputs& inputs = {}) {
  const OptionTable table = Table();
  EngineOptions options = *table.Resolve(inputs);
  const Json json = J(file);
  const Result<GenerationConfig> generation = ReadGenerationConfig({.generation = &json});
  EXPECT_TRUE(generation.ok()) << generation.message();
  table.OfferGeneration(*generation, options);
  return options;
}

TEST(Offer, GenerationConfig) {
  const EngineOptions options = WithGeneration(
      R"({"do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.95,
          "repetition_penalty": 1.05, "max_new_tokens": 99, "stop_strings": ["X"]})",
      {.command_line = {{"top-k", "5"}}});
  EXPECT_EQ(options.temp.value, 0.6);
  EXPECT_EQ(options.temp.origin.Text(), "generation_config.json: temperature");
  EXPECT_EQ(options.top_k.value, 5);
  EXPECT_EQ(options.top_p.value, 0.95);
  EXPECT_EQ(options.repetition_penalty.value, 1.05);
  EXPECT_EQ(options.max_new_tokens.value, 99);
  EXPECT_EQ(options.stop.value, (std::vector<std::string>{"X"}));
  EXPECT_EQ(options.min_p.origin.kind, Origin::Kind::kEngineDefault);
}

TEST(Offer, SamplingStartsOnlyWithDoSample) {
  EXPECT_EQ(WithGeneration(R"({"temperature": 0.6})").temp.value, 0);
  EXPECT_EQ(WithGeneration(R"({"do_sample": false, "temperature": 0.6})").temp.value, 0);
  EXPECT_EQ(WithGeneration(R"({"do_sample": true})").temp.value, 1);
  EXPECT_EQ(WithGeneration(R"({"do_sample": true})").temp.origin.Text(),
            "generation_config.json: do_sample");
  EXPECT_EQ(
      WithGeneration(R"({"do_sample": true})", {.command_line = {{"temp", "0.3"}}}).temp.value,
      0.3);
}

// The strongest source that sets a leaf has it, whatever the others say.
RC_GTEST_PROP(Resolve, SetNessDecides, ()) {
  const auto value = [] { return *rc::gen::inRange(1, 1025); };
  const bool cli = *rc::gen::arbitrary<bool>();
  const bool env = *rc::gen::arbitrary<bool>();
  const bool yaml = *rc::gen::arbitrary<bool>();
  const bool model = *rc::gen::arbitrary<bool>();
  const int values[] = {value(), value(), value(), value()};
  OptionInputs inputs;
  if (cli) inputs.command_line.push_back({"threads", std::to_string(values[0])});
  if (env) inputs.environment.emplace_back("TENON_THREADS", std::to_string(values[1]));
  const TempFile file(yaml ? "threads: " + std::to_string(values[2]) : "");
  inputs.environment.emplace_back("TENON_CONFIG", file.path());
  const OptionTable table = Table();
  EngineOptions options = *table.Resolve(inputs);
  const OptionDefault wish[] = {{"threads", std::to_string(values[3]), "why"}};
  if (model) RC_ASSERT(table.OfferModelDefaults(wish, options).ok());
  const bool set[] = {cli, env, yaml, model};
  const Origin::Kind kinds[] = {Origin::Kind::kUser, Origin::Kind::kEnvironment,
                                Origin::Kind::kConfigFile, Origin::Kind::kModelDefault};
  std::optional<int64_t> expected;
  Origin::Kind kind = Origin::Kind::kEngineDefault;
  for (int i = 3; i >= 0; --i) {
    if (!set[i]) continue;
    expected = values[i];
    kind = kinds[i];
  }
  RC_ASSERT(options.threads.value == expected);
  RC_ASSERT(options.threads.origin.kind == kind);
}

TEST(ParseSize, UnitsAndLimits) {
  const auto size = [](const char* text) { return *ParseSize(text); };
  EXPECT_EQ(size("4096"), 4096);
  EXPECT_EQ(size("8G"), int64_t{8} << 30);
  EXPECT_EQ(size("8GiB"), int64_t{8} << 30);
  EXPECT_EQ(size("8GB"), 8000000000);
  EXPECT_EQ(size("512MiB"), 512 << 20);
  EXPECT_EQ(size("512 mib"), 512 << 20);
  EXPECT_EQ(size("1.5k"), 1536);
  EXPECT_EQ(size("2T"), int64_t{2} << 40);
  EXPECT_EQ(size(" 7b "), 7);
  for (const char* text :
       {"", "G", "8X", "-1", "1e3", "1..5G", "nan", "inf", "8 G B", "99999999999T", "0x10"}) {
    EXPECT_FALSE(ParseSize(text).ok()) << text;
  }
  EXPECT_TRUE(Contains(ParseSize("8X").message(), "'8X' is no size"));
}

RC_GTEST_PROP(ParseSize, WholeNumbersRoundTrip, ()) {
  const int64_t number = *rc::gen::inRange<int64_t>(0, 1 << 20);
  using Unit = std::pair<const char*, int64_t>;
  const Unit unit = *rc::gen::element(Unit("", 1), Unit("K", 1 << 10), Unit("mib", 1 << 20),
                                      Unit("GB", 1000000000));
  RC_ASSERT(*ParseSize(std::to_string(number) + unit.first) == number * unit.second);
}

TEST(Docs, MarkdownHasOneLinePerOption) {
  const OptionTable table = Table();
  const std::string text = table.Markdown();
  const std::vector<std::string_view> lines = Split(text, '\n');
  ASSERT_EQ(lines.size(), table.rows().size() + 3);  // head, rule, the empty end
  EXPECT_TRUE(
      Contains(text,
               "| `--max-new-tokens`, `-n` | int (tokens) | `unlimited` | 0 .. 2147483647 \\| "
               "unlimited | run | `TENON_MAX_NEW_TOKENS` | stable | longest answer"))
      << text;
  EXPECT_TRUE(Contains(
      text, "| `--attn-backend` | enum | `auto` | auto \\| NATIVE \\| TRTLLM \\| VANILLA |"))
      << text;
}

TEST(Docs, JsonShowsValuesAndOrigins) {
  const OptionTable table = Table();
  const EngineOptions options = *table.Resolve({.command_line = {{"threads", "2"}}});
  const Json json = table.ToJson(options);
  ASSERT_EQ(json.as_array().size(), table.rows().size());
  for (const Json& row : json.as_array()) {
    if (row.Find("option")->as_string() == "threads") {
      EXPECT_EQ(row, J(R"({"option": "threads", "value": 2, "origin": "--threads"})"));
    }
    if (row.Find("option")->as_string() == "memory") {
      EXPECT_EQ(row, J(R"({"option": "memory", "value": "auto", "origin": "engine default"})"));
    }
  }
}

}  // namespace
}  // namespace tenon
