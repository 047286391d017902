#include "tenon/base/json.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tenon {
namespace {

TEST(Json, KeepsOrderAndKinds) {
  const auto parsed = ParseJson(R"({"b": [1, 2.5, null, true], "a": {"x": "y"}})");
  ASSERT_TRUE(parsed.ok()) << parsed.message();
  EXPECT_EQ(parsed->Dump(), R"({"b":[1,2.5,null,true],"a":{"x":"y"}})");
  EXPECT_TRUE(parsed->Find("b")->as_array()[0].is_int());
  EXPECT_FALSE(parsed->Find("b")->as_array()[1].is_int());
}

TEST(Json, ReadsInfinityAndNan) {
  const auto parsed = ParseJson(
      R"({"limit": [0.0, Infinity], "low": -Infinity, "n": NaN, "text": "NaN Infinity"})");
  ASSERT_TRUE(parsed.ok()) << parsed.message();
  EXPECT_TRUE(std::isinf(parsed->Find("limit")->as_array()[1].as_double()));
  EXPECT_LT(parsed->Find("low")->as_double(), 0);
  EXPECT_TRUE(std::isnan(parsed->Find("n")->as_double()));
  EXPECT_EQ(parsed->Find("text")->as_string(), "NaN Infinity");
}

TEST(Json, NoTextIsTakenForANumber) {
  // Whatever stands for NaN inside: a text of the file that looks so stays a text, beside a NaN
  // too.
  const auto parsed =
      ParseJson(R"({"\u0001number:NaN": "\u0001number:NaN", "n": NaN, "t": "\u0001"})");
  ASSERT_TRUE(parsed.ok()) << parsed.message();
  ASSERT_EQ(parsed->as_object().size(), 3u);
  const auto& [name, value] = parsed->as_object()[0];
  EXPECT_EQ(name, "\x01number:NaN");
  ASSERT_TRUE(value.is_string());
  EXPECT_EQ(value.as_string(), "\x01number:NaN");
  EXPECT_TRUE(parsed->Find("n")->is_number());
  EXPECT_EQ(parsed->Find("t")->as_string(), "\x01");
}

TEST(Json, NanIsNoName) {
  const auto parsed = ParseJson(R"({NaN: 1})");
  ASSERT_FALSE(parsed.ok());
  EXPECT_NE(parsed.message().find("NaN"), std::string::npos) << parsed.message();
}

TEST(Json, RepeatedKeyKeepsTheLast) {
  EXPECT_EQ(ParseJson(R"({"a": 1, "b": 2, "a": 3})")->Dump(), R"({"a":3,"b":2})");
}

TEST(Json, ErrorsNameThePlace) {
  const auto parsed = ParseJson("{\n  \"a\": }");
  ASSERT_FALSE(parsed.ok());
  EXPECT_EQ(parsed.code(), StatusCode::kRefused);
  EXPECT_NE(parsed.message().find("line 2"), std::string::npos) << parsed.message();
}

TEST(Json, DeepNestingIsRefusedNotCrashed) {
  const std::string deep = std::string(100000, '[') + std::string(100000, ']');
  const auto parsed = ParseJson(deep);
  ASSERT_FALSE(parsed.ok());
  EXPECT_NE(parsed.message().find("deeper"), std::string::npos) << parsed.message();
  const std::string fine = std::string(kMaxJsonDepth, '[') + std::string(kMaxJsonDepth, ']');
  EXPECT_TRUE(ParseJson(fine).ok());
}

TEST(Json, LargeIntegers) {
  EXPECT_EQ(ParseJson("9223372036854775807")->as_int(), INT64_MAX);
  EXPECT_FALSE(ParseJson("9223372036854775808")->is_int());
  EXPECT_DOUBLE_EQ(ParseJson("9223372036854775808")->as_double(), 9223372036854775808.0);
  EXPECT_EQ(ParseJson("18446744073709551615")->as_large_int(), UINT64_MAX);
  EXPECT_EQ(ParseJson("[18446744073709551615]")->Dump(), "[18446744073709551615]");
  EXPECT_FALSE(ParseJson("18446744073709551616")->is_large_int());
  EXPECT_TRUE(Json(uint64_t{7}).is_int());
}

TEST(Json, DumpReadsBackEqual) {
  const auto parsed = ParseJson(R"({"a":[0.1,1e-05,1e300,-0.0],"b":"\u00e9\u0001\"\\"})");
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(*ParseJson(parsed->Dump()), *parsed);
  EXPECT_EQ(*ParseJson(parsed->Dump(2)), *parsed);
}

}  // namespace
}  // namespace tenon
