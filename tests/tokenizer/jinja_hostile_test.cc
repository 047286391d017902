// Templates that mean harm, and templates that mean nothing: an error, never a crash or a hang.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <chrono>
#include <random>

#include "tokenizer/jinja_support.h"

namespace tenon {
namespace {

using test::RenderText;

// Frames are larger where nothing is optimised or sanitizers watch them.
#ifdef NDEBUG
constexpr int kFrameFactor = 1;
#else
constexpr int kFrameFactor = 4;
#endif

// Small enough for the tests to be quick, large enough to do something.
RenderLimits SmallLimits() {
  RenderLimits limits;
  limits.max_steps = 2'000'000;
  limits.max_live_bytes = int64_t{32} << 20;
  limits.max_output_bytes = int64_t{4} << 20;
  return limits;
}

struct Hostile {
  const char* what;
  const char* source;
};

constexpr Hostile kHostile[] = {
    {"huge range", "{{ range(10**12) }}"},
    {"range beyond the integers", "{{ range(2**100) }}"},
    {"integer overflow", "{{ 10 ** 100 }}"},
    {"smallest integer negated", "{{ -(-(2**126) * 2) // -1 }}"},
    {"loops in loops",
     "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"},
    {"macro calls itself", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"},
    {"macro calls itself through call",
     "{% macro m() %}{% call m() %}{{ caller() }}{% endcall %}{% endmacro %}"
     "{% call m() %}{% endcall %}"},
    {"macro default calls itself", "{% macro m(a=m()) %}{{ a }}{% endmacro %}{{ m() }}"},
    {"block calls itself", "{% block b %}{{ self.b() }}{% endblock %}"},
    {"recursive loop for ever", "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}"},
    {"text doubles",
     "{% set ns = namespace(t='x') %}{% for i in range(60) %}{% set ns.t = ns.t ~ ns.t %}"
     "{% endfor %}{{ ns.t }}"},
    {"list doubles",
     "{% set ns = namespace(t=[1]) %}{% for i in range(60) %}{% set ns.t = ns.t + ns.t %}"
     "{% endfor %}"},
    {"value of shared halves",
     "{% set ns = namespace(t=[]) %}{% for i in range(60) %}{% set ns.t = [ns.t, ns.t] %}"
     "{% endfor %}{{ ns.t }}"},
    {"key of shared halves",
     "{% set ns = namespace(t=()) %}{% for i in range(60) %}{% set ns.t = (ns.t, ns.t) %}"
     "{% endfor %}{{ {ns.t: 1} }}"},
    {"deep value",
     "{% set ns = namespace(t=[]) %}{% for i in range(9999) %}{% set ns.t = [ns.t] %}{% endfor %}"},
    {"deep value of methods",
     "{% set ns = namespace(t=[]) %}{% for i in range(9999) %}{% set ns.t = [ns.t].count %}"
     "{% endfor %}"},
    {"deep value of joiners",
     "{% set ns = namespace(t=[]) %}{% for i in range(9999) %}{% set ns.t = joiner(ns.t) %}"
     "{% endfor %}"},
    {"repeat text", "{{ 'x' * 10**12 }}"},
    {"repeat list", "{{ [1] * 10**12 }}"},
    {"repeat by a huge number", "{{ 'ab' * 2**120 }}"},
    {"wide field", "{{ '%999999999d' % 1 }}"},
    {"wide field by argument", "{{ '%*d' % (999999999, 1) }}"},
    {"precise field", "{{ '%.999999999f' % 1 }}"},
    {"wide brace field", "{{ '{:>999999999}'.format(1) }}"},
    {"precise brace field", "{{ '{:.999999999f}'.format(1) }}"},
    {"center", "{{ 'x'.center(10**10) }}"},
    {"center filter", "{{ 'x' | center(10**10) }}"},
    {"ljust", "{{ 'x'.ljust(10**10, 'y') }}"},
    {"zfill", "{{ 'x'.zfill(10**10) }}"},
    {"expandtabs", "{{ '\t'.expandtabs(10**9) }}"},
    {"indent", "{{ 'a\nb' | indent(10**10) }}"},
    {"tojson indent", "{{ [1] | tojson(indent=10**10) }}"},
    {"batch", "{{ [1] | batch(10**10, 0) | list }}"},
    {"slice", "{{ [1] | slice(10**10) | list }}"},
    {"replace grows",
     "{% set ns = namespace(t='xx') %}{% for i in range(60) %}"
     "{% set ns.t = ns.t | replace('x', 'xxxx') %}{% endfor %}"},
    {"join grows", "{% set t = 'x' * 100000 %}{{ (range(99999) | list) | join(t) }}"},
    {"output", "{% for i in range(99999) %}{{ 'x' * 1000 }}{% endfor %}"},
    {"output in captures",
     "{% for i in range(99999) %}{% set x %}{{ 'x' * 100000 }}{% endset %}{{ x }}{% endfor %}"},
    {"namespaces",
     "{% set ns = namespace() %}{% for i in range(99999) %}{% for j in range(99999) %}"
     "{% set ns.p = namespace(p=ns.p) %}{% endfor %}{% endfor %}"},
    {"macros kept",
     "{% set ns = namespace(l=[]) %}{% for i in range(99999) %}{% for j in range(99999) %}"
     "{% macro m() %}{{ i }}{% endmacro %}{% set ns.m = m %}{% endfor %}{% endfor %}"},
    {"sort of texts",
     "{% set l = (range(99999) | map('string') | list) %}"
     "{% for i in range(99999) %}{{ l | sort | length }}{% endfor %}"},
    {"search",
     "{% set t = 'a' * 4000000 %}{% for i in range(99999) %}{{ (t ~ 'b') in t }}{% endfor %}"},
    {"map of map", "{{ [[[1]]] | map('map', 'map', 'map', 'map', 'upper') | list | length / 0 }}"},
    {"namespace in itself printed", "{% set ns = namespace() %}{% set ns.a = [ns] %}{{ ns }}"},
};

TEST(JinjaHostile, LimitsEndTheRender) {
  for (const Hostile& hostile : kHostile) {
    const auto begin = std::chrono::steady_clock::now();
    const Result<std::string> text = RenderText(hostile.source, Json(), SmallLimits());
    const auto seconds = std::chrono::steady_clock::now() - begin;
    EXPECT_FALSE(text.ok()) << hostile.what << ": " << text->substr(0, 100);
    EXPECT_EQ(text.code(), StatusCode::kRefused) << hostile.what;
    EXPECT_LT(seconds, std::chrono::seconds(20)) << hostile.what;
  }
}

TEST(JinjaHostile, NestedSourceIsRefused) {
  const auto repeat = [](const std::string& unit, int count) {
    std::string text;
    for (int i = 0; i < count; ++i) text += unit;
    return text;
  };
  constexpr int kMany = 20'000;
  const std::string sources[] = {
      "{{ " + repeat("(", kMany) + "1" + repeat(")", kMany) + " }}",
      "{{ " + repeat("[", kMany) + repeat("]", kMany) + " }}",
      "{{ " + repeat("{1:", kMany) + "1" + repeat("}", kMany) + " }}",
      "{{ " + repeat("- ", kMany) + "1 }}",
      "{{ " + repeat("not ", kMany) + "1 }}",
      "{{ 1" + repeat(" + 1", kMany) + " }}",
      "{{ 1" + repeat(" | abs", kMany) + " }}",
      "{{ x" + repeat(".a", kMany) + " }}",
      "{{ x" + repeat("[0]", kMany) + " }}",
      "{{ x" + repeat("()", kMany) + " }}",
      "{{ 1" + repeat(" if 1 else 1", kMany) + " }}",
      "{{ 1" + repeat(" if 1", kMany) + " }}",
      repeat("{% if 1 %}", kMany) + repeat("{% endif %}", kMany),
      repeat("{% for a in b %}", kMany),
      repeat("{% set x %}", kMany),
      "{% set " + repeat("(", kMany) + "a" + repeat(")", kMany) + " = 1 %}",
      "{{ f(" + repeat("f(", kMany) + repeat(")", kMany) + ") }}",
  };
  for (const std::string& source : sources) {
    EXPECT_EQ(RenderText(source).code(), StatusCode::kRefused) << source.substr(0, 40);
  }
  // Long but flat is fine.
  EXPECT_EQ(RenderText("{{ 'a'" + repeat(" ~ 'a'", 5'000) + " }}")->size(), 5'001u);
  EXPECT_EQ(*RenderText("{% if 0 %}" + repeat("{% elif 0 %}", 5'000) + "{% else %}x{% endif %}"),
            "x");
}

TEST(JinjaHostile, ReasonableDepthWorks) {
  // A schema 100 levels deep through a recursive macro, as templates that print tools do.
  const std::string source =
      "{% macro walk(s) %}{% if s is mapping %}{% for k, v in s.items() %}{% if v is mapping %}"
      "{{ '(' ~ walk(v) ~ ')' }}{% else %}{{ v }}{% endif %}{% endfor %}{% endif %}{% endmacro %}"
      "{{ walk(schema) }}";
  Json schema{Json::Object{}};
  schema.Set("v", "x");
  std::string wanted = "x";
  for (int i = 0; i < 100; ++i) {
    Json outer{Json::Object{}};
    outer.Set("v", std::move(schema));
    schema = std::move(outer);
    wanted = "(" + wanted + ")";
  }
  Json context{Json::Object{}};
  context.Set("schema", std::move(schema));
  RenderLimits limits;
  limits.max_stack_bytes *= kFrameFactor;
  const Result<std::string> text = RenderText(source, context, limits);
  ASSERT_TRUE(text.ok()) << text.message();
  EXPECT_EQ(*text, wanted);
}

TEST(JinjaHostile, DeepAndDamagedInputIsHandled) {
  Json deep;
  for (int i = 0; i < 5'000; ++i) {
    Json::Array outer;
    outer.push_back(std::move(deep));
    deep = Json(std::move(outer));
  }
  Json context{Json::Object{}};
  context.Set("x", std::move(deep));
  EXPECT_EQ(RenderText("{{ x }}", context).code(), StatusCode::kRefused);
  Json damaged{Json::Object{}};
  damaged.Set("x", std::string("a\xFF\xC3"));
  EXPECT_EQ(*RenderText("{{ x }}{{ x | length }}{{ x[::-1] }}", damaged),
            "a\uFFFD\uFFFD3\uFFFD\uFFFDa");
}

TEST(JinjaHostile, TheDefaultLimitsEndAHang) {
  RenderLimits limits;
  limits.max_steps /= kFrameFactor * kFrameFactor;  // sanitizers are slow, too
  const Result<std::string> text = RenderText(
      "{% for a in range(99999) %}{% for b in range(99999) %}{{ a * b }}{% endfor %}{% endfor %}",
      Json(), limits);
  ASSERT_FALSE(text.ok());
  EXPECT_NE(text.message().find("limit"), std::string::npos) << text.message();
}

constexpr const char* kSoup[] = {"{{",         "}}",
                                 "{%",         "%}",
                                 "{#",         "#}",
                                 "{%-",        "-%}",
                                 "{{-",        "-}}",
                                 "+%}",        "for",
                                 "in",         "if",
                                 "else",       "elif",
                                 "endif",      "endfor",
                                 "set",        "endset",
                                 "macro",      "endmacro",
                                 "call",       "endcall",
                                 "filter",     "endfilter",
                                 "with",       "endwith",
                                 "block",      "endblock",
                                 "raw",        "endraw",
                                 "generation", "endgeneration",
                                 "autoescape", "endautoescape",
                                 "break",      "continue",
                                 "recursive",  "not",
                                 "and",        "or",
                                 "is",         "defined",
                                 "x",          "y",
                                 "m",          "loop",
                                 "self",       "caller",
                                 "varargs",    "messages",
                                 "namespace",  "range",
                                 "dict",       "joiner",
                                 "cycler",     "(",
                                 ")",          "[",
                                 "]",          "{",
                                 "}",          ",",
                                 ":",          ".",
                                 "|",          "~",
                                 "+",          "-",
                                 "*",          "/",
                                 "//",         "%",
                                 "**",         "==",
                                 "!=",         "<",
                                 ">",          "=",
                                 "1",          "0",
                                 "2.5",        "10",
                                 "'a'",        "\"b\"",
                                 "'\\",        "upper",
                                 "map",        "select",
                                 "join",       "list",
                                 "sort",       "tojson",
                                 "items",      "length",
                                 "first",      "replace",
                                 "format",     "split",
                                 "strip",      "index",
                                 "true",       "none",
                                 " ",          " ",
                                 " ",          "\n",
                                 "\xC3\xA9",   "\xF0\x9F\x98\x80",
                                 "\xFF",       "$"};

// Keeps the soup's chance of being a program: statements that belong together.
constexpr const char* kPieces[] = {"{% for x in [1, 2, 'a'] %}",
                                   "{% endfor %}",
                                   "{% if x %}",
                                   "{% else %}",
                                   "{% endif %}",
                                   "{% set y = x %}",
                                   "{% set y %}",
                                   "{% endset %}",
                                   "{% macro m(a, b=1) %}",
                                   "{% endmacro %}",
                                   "{{ m(x) }}",
                                   "{{ x }}",
                                   "{{ y | upper }}",
                                   "{{ [x, y] | tojson }}",
                                   "{% call m(1) %}",
                                   "{% endcall %}",
                                   "{{ caller() }}",
                                   "{{ loop.index }}",
                                   "{{ loop(x) }}",
                                   "{{ x[1:] }}",
                                   "{% with y = x %}",
                                   "{% endwith %}",
                                   "{% filter upper %}",
                                   "{% endfilter %}",
                                   "{{ x.y }}",
                                   "{% set ns = namespace(a=x) %}",
                                   "{% set ns.a = y %}",
                                   "{{ ns.a }}",
                                   "{% break %}",
                                   "{% for x in y recursive %}",
                                   "{% for x in range(3) if x %}",
                                   "{{ '%s' % x }}",
                                   "text\n",
                                   "{% block b %}",
                                   "{% endblock %}",
                                   "{{ self.b() }}",
                                   "{% generation %}",
                                   "{% endgeneration %}",
                                   "{{ x is string }}",
                                   "{{ x ~ y }}",
                                   "{{ x + y }}",
                                   "{{ y.items() }}",
                                   "{{ x.split() }}"};

template <size_t N>
std::string Mix(const char* const (&pieces)[N], const std::vector<uint32_t>& choices) {
  std::string source;
  for (const uint32_t choice : choices) source += pieces[choice % N];
  return source;
}

// Either a text or a refusal that names the template; nothing else may happen.
void ExpectTextOrRefusal(const std::string& source) {
  RenderLimits limits = SmallLimits();
  limits.max_steps = 20'000;
  Json context{Json::Object{}};
  context.Set("y", *ParseJson(R"([1, "two", {"k": [3.5, null, true]}])"));
  const Result<std::string> text = RenderText(source, context, limits);
  if (text.ok()) return;
  EXPECT_EQ(text.code(), StatusCode::kRefused) << source;
  EXPECT_TRUE(text.message().starts_with("template 'test'")) << source << ": " << text.message();
}

TEST(JinjaHostile, TokenSoupNeverCrashes) {
  EXPECT_TRUE(rc::check([](const std::vector<uint32_t>& choices) {
    ExpectTextOrRefusal(Mix(kSoup, choices));
    ExpectTextOrRefusal("{{ " + Mix(kSoup, choices) + " }}");
    ExpectTextOrRefusal(Mix(kPieces, choices));
  }));
}

TEST(JinjaHostile, MuchSoupNeverCrashes) {
  std::mt19937 random(20260305);  // NOLINT(cert-msc51-cpp): the same soup every time
  for (int i = 0; i < 4'000; ++i) {
    std::vector<uint32_t> choices(1 + random() % 25);
    for (uint32_t& choice : choices) choice = static_cast<uint32_t>(random());
    ExpectTextOrRefusal(Mix(kSoup, choices));
    ExpectTextOrRefusal("{{ " + Mix(kSoup, choices) + " }}");
    ExpectTextOrRefusal(Mix(kPieces, choices));
  }
}

TEST(JinjaHostile, BytesNeverCrash) {
  EXPECT_TRUE(rc::check([](const std::string& bytes) {
    ExpectTextOrRefusal(bytes);
    ExpectTextOrRefusal("{% " + bytes);
    ExpectTextOrRefusal("{{ '" + bytes + "' }}");
  }));
}

// Any prefix of a real template, and any template with a part cut out.
TEST(JinjaHostile, CutTemplatesNeverCrash) {
  const std::string source = *ReadFile(test::TemplatePath("qwen3.jinja"));
  EXPECT_TRUE(rc::check([&](uint32_t a, uint32_t b) {
    const size_t begin = a % source.size();
    const size_t end = begin + b % (source.size() - begin);
    ExpectTextOrRefusal(source.substr(0, begin));
    ExpectTextOrRefusal(source.substr(0, begin) + source.substr(end));
  }));
}

}  // namespace
}  // namespace tenon
