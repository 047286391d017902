// Messages are tested by what they must name, not by their whole text. Test support.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <string_view>

namespace tenon::test {

// Every one of the words is in the text.
inline void ExpectWords(std::string_view text, std::initializer_list<std::string_view> words) {
  for (const std::string_view word : words) {
    EXPECT_NE(text.find(word), std::string_view::npos) << "no '" << word << "' in: " << text;
  }
}

}  // namespace tenon::test
