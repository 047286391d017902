#include "tenon/config/config_reader.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

#include "config/test_json.h"

namespace tenon {
namespace {

using test::Contains;
using test::J;

// The record's entry of a path, or null.
Json EntryOf(const ConfigReader& reader, std::string_view path) {
  const Json json = reader.ToJson();
  for (const Json& entry : json.Find("read")->as_array()) {
    if (entry.Find("key")->as_string() == path) return entry;
  }
  return nullptr;
}

TEST(ConfigReader, FirstPresentAliasWinsWithItsOrigin) {
  ConfigReader reader(J(R"({"a": null, "b": 7, "c": 7, "d": 8})"));
  const Sourced<int64_t> value = reader.RequireInt({"a", "b", "c", "d"});
  EXPECT_EQ(value.value, 7);
  EXPECT_EQ(value.origin, (Origin{Origin::Kind::kCheckpoint, "config.json: b"}));
  EXPECT_TRUE(reader.ok());
  EXPECT_TRUE(reader.UnreadKeys().empty());
  // An alias that says something else is told of.
  EXPECT_EQ(EntryOf(reader, "b").Find("note")->as_string(), "d = 8 is not used");
}

TEST(ConfigReader, DefaultsAreRecordedAsTheFamilys) {
  ConfigReader reader(J(R"({"x": null})"));
  EXPECT_EQ(reader.Int("x", 5).value, 5);
  const Sourced<double> eps = reader.Double("eps", 1e-6);
  EXPECT_EQ(eps.value, 1e-6);
  EXPECT_EQ(eps.origin.kind, Origin::Kind::kModelDefault);
  EXPECT_EQ(eps.origin.Text(), "default, config.json: eps is absent");
  EXPECT_EQ(reader.IntOrNull("x").value, std::nullopt);
  EXPECT_EQ(reader.Int(Keys(), 3).value, 3);  // a family without the key
  EXPECT_EQ(EntryOf(reader, "eps").Find("value")->as_double(), 1e-6);
  EXPECT_TRUE(reader.ok());
}

TEST(ConfigReader, ConversionsAreExactAndNoted) {
  ConfigReader reader(J(R"({"w": 4096.0, "b": 1, "z": 0.0, "t": true})"));
  EXPECT_EQ(reader.RequireInt("w").value, 4096);
  EXPECT_TRUE(reader.RequireBool("b").value);
  EXPECT_FALSE(reader.RequireBool("z").value);
  EXPECT_TRUE(reader.RequireBool("t").value);
  EXPECT_TRUE(reader.ok());
  EXPECT_EQ(EntryOf(reader, "w").Find("note")->as_string(), "4096.0 read as 4096");
  EXPECT_EQ(EntryOf(reader, "t").Find("note"), nullptr);
}

TEST(ConfigReader, InfinityIsANumberNaNIsNot) {
  ConfigReader reader(J(R"({"limits": [0.0, Infinity], "nan": NaN, "inf": Infinity})"));
  const std::vector<double> limits = reader.Doubles("limits", {}).value;
  ASSERT_EQ(limits.size(), 2u);
  EXPECT_TRUE(std::isinf(limits[1]));
  EXPECT_TRUE(reader.ok());
  EXPECT_EQ(reader.Double("nan", 2).value, 2);
  reader.Double("inf", 2, kPositiveReal);
  const std::string text = reader.status().message();
  EXPECT_TRUE(Contains(text, "nan = NaN (number), must be a number;")) << text;
  EXPECT_TRUE(Contains(text, "inf = Infinity (number), must be a finite number above 0;")) << text;
}

TEST(ConfigReader, AllErrorsTogetherEachWithValueKindRangeOriginAndFix) {
  ConfigReader reader(J(R"({"hidden_sise": 64, "heads": "4", "layers": 0, "act": "swish"})"));
  reader.RequireInt({"hidden_size", "d_model"});
  reader.RequireInt("heads");
  EXPECT_EQ(reader.RequireInt("layers", {.low = 1, .high = 99}).value, 1);  // a usable placeholder
  reader.Enum<int>("act", {{"silu", 1}, {"gelu", 2}});
  const Status status = reader.status();
  EXPECT_EQ(status.code(), StatusCode::kRefused);
  EXPECT_EQ(status.message(),
            "config.json has 4 problems:\n"
            "  config.json: hidden_size is missing (nor is there d_model), there is hidden_sise; "
            "fix: add hidden_size: an integer from 1 to 2147483647\n"
            "  heads = \"4\" (string), must be an integer from 1 to 2147483647; set by "
            "config.json: heads; fix: correct it in config.json\n"
            "  layers = 0 (integer), must be an integer from 1 to 99; set by config.json: layers; "
            "fix: correct it in config.json\n"
            "  act = \"swish\" (string), must be one of silu, gelu; set by config.json: act; fix: "
            "correct it in config.json");
}

TEST(ConfigReader, EnumHasDefaultAndValue) {
  ConfigReader reader(J(R"({"act": "gelu"})"));
  EXPECT_EQ(reader.Enum<char>("act", {{"silu", 's'}, {"gelu", 'g'}}).value, 'g');
  const Sourced<char> routing = reader.Enum<char>("routing", {{"a", 'a'}, {"b", 'b'}}, 'b');
  EXPECT_EQ(routing.value, 'b');
  EXPECT_EQ(routing.origin.kind, Origin::Kind::kModelDefault);
  EXPECT_EQ(EntryOf(reader, "routing").Find("value")->as_string(), "b");
  EXPECT_TRUE(reader.ok());
}

TEST(ConfigReader, NestedReadersShareRecordAndPaths) {
  ConfigReader reader(J(R"({"text_config": {"heads": 4, "left": 1}, "vision_config": {"x": 1}})"));
  ConfigReader text = reader.Nested("text_config");
  EXPECT_EQ(text.RequireInt("heads").origin.detail, "config.json: text_config.heads");
  text.RequireInt("layers");
  EXPECT_TRUE(Contains(reader.status().message(), "config.json: text_config.layers is missing"));
  EXPECT_EQ(reader.UnreadKeys(), (std::vector<std::string>{"text_config.left", "vision_config"}));
  // Absent: an empty object.
  EXPECT_EQ(reader.Nested("rope_scaling").Int("factor", 3).value, 3);
}

TEST(ConfigReader, KeysOfTheTopThenOfTheObjectInside) {
  ConfigReader reader(J(R"({"a": 1, "b": null, "same": 3, "eps_dropout": 0,
      "inner": {"a": 2, "b": 5, "c": {"d": 7}, "same": 3, "x_dropout": 0, "left": 1}})"));
  reader.AlsoLookIn("inner");
  reader.Ignore({"*_dropout"});
  EXPECT_EQ(reader.Int("a", 0).value, 1);
  const Sourced<int64_t> b = reader.RequireInt("b");
  EXPECT_EQ(b.value, 5);
  EXPECT_EQ(b.origin.Text(), "config.json: inner.b");
  EXPECT_TRUE(reader.Has("c"));
  EXPECT_EQ(reader.Nested("c").RequireInt("d").origin.Text(), "config.json: inner.c.d");
  EXPECT_EQ(reader.Int("same", 0).value, 3);
  EXPECT_EQ(reader.UnreadKeys(), std::vector<std::string>{"inner.left"});
  reader.RequireInt("lift");
  EXPECT_TRUE(Contains(reader.status().message(), "there is left")) << reader.status().message();
  // What was passed over is in the record.
  EXPECT_TRUE(Contains(reader.ToJson().Dump(), "inner.a = 2 is not used"));
}

TEST(ConfigReader, NullIsThereWithoutAValue) {
  ConfigReader reader(J(R"({"a": null, "b": null, "inner": {"b": 3, "c": null}})"));
  EXPECT_TRUE(reader.IsNull("a"));
  EXPECT_TRUE(reader.IsNull({"x", "a"}));
  EXPECT_TRUE(reader.IsNull("b"));
  EXPECT_FALSE(reader.IsNull("c"));
  EXPECT_FALSE(reader.IsNull("x"));
  reader.AlsoLookIn("inner");
  EXPECT_FALSE(reader.IsNull("b"));
  EXPECT_TRUE(reader.IsNull("c"));
}

TEST(ConfigReader, NoObjectInsideChangesNothing) {
  ConfigReader reader(J(R"({"inner": 3})"));
  reader.AlsoLookIn("inner");
  reader.AlsoLookIn("absent");
  EXPECT_EQ(reader.Int("a", 4).value, 4);
  EXPECT_TRUE(reader.ok());
}

TEST(ConfigReader, ABrokenObjectIsOneError) {
  ConfigReader reader(J(R"({"text_config": [1]})"));
  ConfigReader text = reader.Nested("text_config");
  text.RequireInt("heads");
  text.Nested("deeper").RequireInt("x");
  EXPECT_EQ(reader.status().message(),
            "text_config = [1] (array), must be an object; set by config.json: text_config; fix: "
            "correct it in config.json");
  ConfigReader root(J("[1, 2]"));
  root.RequireInt("heads");
  EXPECT_EQ(root.status().message(),
            "config.json is [1,2] (array), must be an object with keys; fix: use the model's own "
            "config.json");
}

TEST(ConfigReader, IgnorePatterns) {
  ConfigReader reader(J(R"({"use_cache": 1, "attn_dropout": 0, "init_std": 1, "drop_x": 1,
                            "text_config": {"use_cache": true}})"));
  reader.Ignore({"use_cache", "*dropout", "init_*"});
  reader.Nested("text_config");
  // Patterns hold for the level they were given at.
  EXPECT_EQ(reader.UnreadKeys(), (std::vector<std::string>{"drop_x", "text_config.use_cache"}));
}

TEST(ConfigReader, ListsCheckEveryEntry) {
  ConfigReader reader(
      J(R"({"one": 2, "many": [1, 2.0], "bad": [1, "2"], "big": [1,1,1,1,1,1,1,1,-1],
                            "s": ["a"], "mixed": ["a", 1]})"));
  EXPECT_EQ(reader.IntsOrInt("one", {}).value, (std::vector<int64_t>{2}));
  EXPECT_EQ(reader.IntsOrInt("many", {}).value, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(reader.Strings("s", {}).value, (std::vector<std::string>{"a"}));
  EXPECT_TRUE(reader.ok());
  reader.Ints("one", {});
  reader.Ints("bad", {});
  reader.Ints("big", {});
  reader.Strings("mixed", {});
  const std::string text = reader.status().message();
  EXPECT_TRUE(Contains(text, "has 4 problems")) << text;
  EXPECT_TRUE(Contains(text, "bad = [1,\"2\"] (array, entry 1 is \"2\"), must be a list, each"))
      << text;
  EXPECT_TRUE(Contains(text, "big = [9 values] (array, entry 8 is -1), must be a list")) << text;
}

TEST(ConfigReader, PerLayerTakesOneOrAList) {
  ConfigReader reader(J(R"({"a": 3, "b": [2, 0, 4], "c": [1, 2], "d": 0, "e": [true, 0, 1]})"));
  const Sourced<int64_t> layers = {3, {}};
  const PerLayer<int64_t> a = reader.PerLayerInt("a", layers, {}).value;
  EXPECT_FALSE(a.is_list());
  EXPECT_EQ(a[2], 3);
  const PerLayer<int64_t> b = reader.PerLayerInt("b", layers, {}).value;
  EXPECT_TRUE(b.is_list());
  EXPECT_FALSE(b.IsUniform());
  EXPECT_EQ(b[0] * 100 + b[1] * 10 + b[2], 204);
  EXPECT_EQ(b.Max(), 4);
  EXPECT_EQ(reader.PerLayerInt("absent", layers, 9).value, PerLayer<int64_t>(9));
  const PerLayer<bool> e = reader.PerLayerBool("e", layers, false).value;
  EXPECT_TRUE(e[0] && !e[1] && e[2]);
  EXPECT_TRUE(reader.ok());
  reader.PerLayerInt("c", layers, {});
  reader.PerLayerInt("d", layers, {});
  const std::string text = reader.status().message();
  EXPECT_TRUE(Contains(text,
                       "c = [1,2] (array, it has 2), must be an integer from 1 to 2147483647, "
                       "or a list of 3 (one per layer)"))
      << text;
  EXPECT_TRUE(Contains(text, "d = 0 (integer), must be")) << text;
}

TEST(ConfigReader, OriginsOfAnotherContainer) {
  ConfigSource source;
  source.json = J(R"({"heads": 4, "eps": "x"})");
  source.name = "GGUF metadata";
  source.origins = {{"heads", "GGUF: llama.attention.head_count"},
                    {"layers", "GGUF: llama.block_count"},
                    {"eps", "GGUF: llama.eps"}};
  source.unmapped = {"GGUF: llama.odd"};
  ConfigReader reader(std::move(source));
  EXPECT_EQ(reader.RequireInt("heads").origin.Text(), "GGUF: llama.attention.head_count");
  reader.RequireInt("layers");
  reader.RequireDouble("eps");
  const std::string text = reader.status().message();
  EXPECT_TRUE(Contains(text, "GGUF: llama.block_count is missing; fix: add layers")) << text;
  EXPECT_TRUE(Contains(text, "set by GGUF: llama.eps; fix: correct it in GGUF metadata")) << text;
  EXPECT_EQ(reader.UnreadKeys(), (std::vector<std::string>{"GGUF: llama.odd"}));
}

TEST(ConfigReader, LongValuesAreCutBetweenCharacters) {
  std::string umlauts;
  for (int i = 0; i < 100; ++i) umlauts += "\xC3\xA4";
  ConfigReader reader(Json(Json::Object{{"x", Json("a" + umlauts)}}));
  reader.RequireInt("x");
  const std::string text = reader.status().message();
  // '"' + 'a' + 29 whole characters = 60 bytes.
  EXPECT_TRUE(Contains(text, "x = \"a" + umlauts.substr(0, 58) + "... (string)")) << text;
}

TEST(ConfigReader, ErrorAndRecordReadTwiceStaySingle) {
  ConfigReader reader(J(R"({"a": -1, "b": 1})"));
  reader.RequireInt("a");
  reader.RequireInt("a");
  reader.RequireInt("b");
  reader.RequireInt("b");
  EXPECT_FALSE(Contains(reader.status().message(), "problems"));
  EXPECT_EQ(reader.ToJson().Find("read")->as_array().size(), 1u);
}

// Every key is in exactly one of: read, ignored, unread.
RC_GTEST_PROP(ConfigReader, EveryKeyIsAccountedFor,
              (std::vector<std::pair<uint8_t, uint8_t>> keys)) {
  Json config{Json::Object{}};
  for (const auto& [id, use] : keys) config.Set("k" + std::to_string(id), 1);
  ConfigReader reader(config);
  std::map<std::string, int> fate;
  for (const auto& [id, use] : keys) {
    const std::string name = "k" + std::to_string(id);
    if (fate.contains(name)) continue;
    fate[name] = use % 3;
    if (use % 3 == 1) reader.RequireInt(name);
    if (use % 3 == 2) reader.Ignore({name.c_str()});
  }
  std::vector<std::string> expected;
  for (const auto& [name, value] : config.as_object()) {
    if (fate[name] == 0) expected.push_back(name);
  }
  RC_ASSERT(reader.UnreadKeys() == expected);
  RC_ASSERT(reader.ok());
}

RC_GTEST_PROP(ConfigReader, IntAcceptsExactlyTheRange, (int64_t value, int64_t a, int64_t b)) {
  const IntRange range = {std::min(a, b), std::max(a, b)};
  ConfigReader reader(Json(Json::Object{{"x", Json(value)}}));
  const int64_t read = reader.RequireInt("x", range).value;
  const bool inside = value >= range.low && value <= range.high;
  RC_ASSERT(reader.ok() == inside);
  RC_ASSERT(read >= range.low && read <= range.high);
  if (inside) RC_ASSERT(read == value);
}

}  // namespace
}  // namespace tenon
