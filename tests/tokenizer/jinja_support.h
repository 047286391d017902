// What the tests of the template interpreter share: golden files and one-line renders.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "support/paths.h"
#include "tenon/base/file.h"
#include "tenon/tokenizer/chat_template.h"

namespace tenon::test {

inline std::string TemplatePath(const std::string& file) {
  return DataPath("goldens/templates/" + file);
}

inline Json ReadGolden(const std::string& file) {
  Result<Json> golden = ReadJsonFile(TemplatePath(file));
  EXPECT_TRUE(golden.ok()) << golden.message();
  return golden.ok() ? *std::move(golden) : Json();
}

// Renders `source` with the variables of `context`; parse errors come out as render errors do.
inline Result<std::string> RenderText(const std::string& source, const Json& context = Json(),
                                      const RenderLimits& limits = {}) {
  TN_ASSIGN_OR_RETURN(const ChatTemplate parsed, ChatTemplate::Parse(source, "test"));
  ChatInput input;
  input.kwargs = context;
  input.now = "2026-03-05T14:07:09";
  TN_ASSIGN_OR_RETURN(RenderedChat chat, parsed.Render(input, limits));
  return std::move(chat.text);
}

}  // namespace tenon::test
