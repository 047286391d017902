// StopMatcher: however a text is cut into pieces, the same text comes out, as early as it is safe.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>

#include "tenon/engine/generate.h"

namespace tenon {
namespace {

struct Outcome {
  std::string text;
  bool stopped = false;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};
void PrintTo(const Outcome& o, std::ostream* out) {
  *out << '"' << o.text << '"' << (o.stopped ? " stopped" : "");
}

Outcome Feed(std::vector<std::string> stops, const std::vector<std::string>& pieces) {
  StopMatcher matcher(std::move(stops));
  Outcome outcome;
  for (const std::string& piece : pieces) {
    outcome.text += matcher.Push(piece, outcome.stopped);
    if (outcome.stopped) return outcome;
  }
  outcome.text += matcher.Finish();
  return outcome;
}

TEST(StopMatcher, AcrossPieces) {
  EXPECT_EQ(Feed({"END"}, {"abc", "EN", "D tail"}), (Outcome{"abc", true}));
  EXPECT_EQ(Feed({"END"}, {"E", "N", "D"}), (Outcome{"", true}));
  EXPECT_EQ(Feed({"END"}, {"aEND"}), (Outcome{"a", true}));
  EXPECT_EQ(Feed({"\n\n"}, {"a\n", "b\n", "\nc"}), (Outcome{"a\nb", true}));
}

TEST(StopMatcher, WhatWasHeldBackComesOut) {
  EXPECT_EQ(Feed({"END"}, {"abcEN"}), (Outcome{"abcEN", false}));
  EXPECT_EQ(Feed({"aab"}, {"a", "a", "a", "b", "c"}), (Outcome{"a", true}));
  StopMatcher matcher({"END"});
  bool stopped = true;
  EXPECT_EQ(matcher.Push("xE", stopped), "x");
  EXPECT_FALSE(stopped);
  EXPECT_EQ(matcher.Push("N", stopped), "");
  EXPECT_EQ(matcher.Push("x", stopped), "ENx");
  EXPECT_EQ(matcher.Push("E", stopped), "");
  EXPECT_EQ(matcher.Finish(), "E");
}

TEST(StopMatcher, SeveralStops) {
  EXPECT_EQ(Feed({"</s>", "stop"}, {"a </", "stop"}), (Outcome{"a </", true}));
  // "bc" is complete first, although "abcd" begins before it.
  for (const auto& pieces : {std::vector<std::string>{"xabcd"}, {"x", "a", "b", "c", "d"}}) {
    EXPECT_EQ(Feed({"abcd", "bc"}, pieces), (Outcome{"xa", true}));
    EXPECT_EQ(Feed({"bc", "abcd"}, pieces), (Outcome{"xa", true}));
  }
  // Complete together: the longest.
  EXPECT_EQ(Feed({"c", "abc", "bc"}, {"xab", "c"}), (Outcome{"x", true}));
}

TEST(StopMatcher, NoStopsAndEmptyStops) {
  EXPECT_EQ(Feed({}, {"abc", "def"}), (Outcome{"abcdef", false}));
  EXPECT_EQ(Feed({""}, {"abc", ""}), (Outcome{"abc", false}));
  EXPECT_EQ(Feed({"", "b"}, {"abc"}), (Outcome{"a", true}));
}

TEST(StopMatcher, CharactersOfSeveralBytes) {
  // The stop shares its first two bytes with another character: E2 82 AC and E2 82 AD.
  EXPECT_EQ(Feed({"\xE2\x82\xAC"}, {"a\xE2\x82\xAD", "b\xE2\x82\xAC"}), (Outcome{"a\xE2\x82\xAD"
                                                                                 "b",
                                                                                 true}));
}

// --- against brute force

// The text before the stop that is complete first, of those the one that begins first.
Outcome Brute(const std::vector<std::string>& stops, const std::string& text) {
  for (size_t end = 1; end <= text.size(); ++end) {
    for (size_t begin = 0; begin < end; ++begin) {
      const std::string part = text.substr(begin, end - begin);
      if (std::find(stops.begin(), stops.end(), part) != stops.end()) {
        return {text.substr(0, begin), true};
      }
    }
  }
  return {text, false};
}

// How much of a text without a stop may go out: no longer rest could become one.
size_t Safe(const std::vector<std::string>& stops, const std::string& text) {
  for (size_t begin = 0; begin < text.size(); ++begin) {
    const std::string rest = text.substr(begin);
    for (const std::string& stop : stops) {
      if (stop.size() > rest.size() && stop.starts_with(rest)) return begin;
    }
  }
  return text.size();
}

// Characters that begin alike: one, two, three and three bytes.
rc::Gen<std::string> Texts(int longest) {
  return rc::gen::exec([longest] {
    std::string text;
    const int length = *rc::gen::inRange(0, longest);
    for (int i = 0; i < length; ++i) {
      text += *rc::gen::element<std::string>("a", "b", "\xC3\xA9", "\xE2\x82\xAC", "\xE2\x82\xAD");
    }
    return text;
  });
}

// Whole characters, 1 to 3 at a time, and nothing now and then.
std::vector<std::string> Pieces(const std::string& text) {
  std::vector<std::string> pieces;
  size_t at = 0;
  while (at < text.size()) {
    if (*rc::gen::inRange(0, 4) == 1) pieces.emplace_back();
    const int count = *rc::gen::inRange(1, 4);
    std::string& piece = pieces.emplace_back();
    for (int i = 0; i < count && at < text.size(); ++i) {
      do {
        piece += text[at++];
      } while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80);
    }
  }
  return pieces;
}

TEST(StopMatcher, AnyCutGivesTheSame) {
  EXPECT_TRUE(rc::check("pieces do not matter", [] {
    std::vector<std::string> stops;
    const int count = *rc::gen::inRange(0, 4);
    for (int i = 0; i < count; ++i) stops.push_back(*Texts(5));
    const std::string text = *Texts(40);
    const std::vector<std::string> pieces = Pieces(text);
    const Outcome expected = Brute(stops, text);
    RC_TAG(expected.stopped ? "stopped" : "whole");
    const Outcome got = Feed(stops, pieces);
    RC_ASSERT(got.text == expected.text);
    RC_ASSERT(got.stopped == expected.stopped);
  }));
}

TEST(StopMatcher, NothingIsHeldBackLongerThanNeeded) {
  EXPECT_TRUE(rc::check("what is safe goes out at once", [] {
    const std::vector<std::string> stops = {*Texts(5), *Texts(7)};
    const std::string text = *Texts(40);
    RC_PRE(!Brute(stops, text).stopped);
    StopMatcher matcher(stops);
    std::string seen;
    std::string out;
    for (const std::string& piece : Pieces(text)) {
      bool stopped = false;
      seen += piece;
      out += matcher.Push(piece, stopped);
      RC_ASSERT(!stopped);
      RC_ASSERT(out == seen.substr(0, Safe(stops, seen)));
    }
    RC_ASSERT(out + matcher.Finish() == text);
  }));
}

}  // namespace
}  // namespace tenon
