// Tokenizers of both containers, and chat templates.
#include <algorithm>
#include <charconv>
#include <numeric>

#include "support.h"
#include "targets.h"
#include "tenon/base/text.h"
#include "tenon/tokenizer/chat_template.h"
#include "tenon/tokenizer/gguf_vocabulary.h"
#include "tenon/tokenizer/tokenizer.h"

namespace tenon::fuzz {
namespace {

using TokenizerPtr = std::shared_ptr<const Tokenizer>;

std::string Streamed(const TokenizerPtr& tokenizer, std::span<const int32_t> ids) {
  StreamDecoder decoder(tokenizer, {.skip_special = false});
  std::string text;
  for (const int32_t id : ids) text += *decoder.Push(id);
  return text + decoder.Finish();
}

// stream_is_whole: a stream's text is that of a whole decode (see StreamDecoder).
void DecodeIds(const TokenizerPtr& tokenizer, std::span<const int32_t> ids, bool stream_is_whole) {
  const auto whole = tokenizer->Decode(ids, {.skip_special = false});
  TN_CHECK(whole.ok(), whole.message().c_str());
  const std::string streamed = Streamed(tokenizer, ids);
  TN_CHECK(!stream_is_whole || streamed == *whole, "a stream gives the text of a whole decode");
  TN_CHECK(tokenizer->Decode(ids).ok(), "special tokens can be skipped");
}

void EncodeText(const TokenizerPtr& tokenizer, std::string_view text, bool stream_is_whole) {
  for (const bool special : {false, true}) {
    const auto encoding = tokenizer->Encode(
        text, {.add_special_tokens = special, .parse_special = special, .with_pieces = true});
    if (!encoding.ok()) {
      CheckError(encoding.status());
      continue;
    }
    TN_CHECK(encoding->ids.size() == encoding->pieces.size(), "a piece for each id");
    for (const std::string& piece : encoding->pieces) Read(piece);
    DecodeIds(tokenizer, encoding->ids, stream_is_whole);
  }
}

void WalkTokenizer(const TokenizerPtr& tokenizer, bool stream_is_whole) {
  constexpr int32_t kMostIds = 300;
  const int32_t count = std::min(tokenizer->vocab_size(), kMostIds);
  std::vector<int32_t> ids(static_cast<size_t>(std::max(count, 0)));
  std::iota(ids.begin(), ids.end(), 0);
  std::string spelled;
  for (const int32_t id : ids) {
    const std::string_view text = tokenizer->TokenText(id);
    if (spelled.size() < 4096) spelled += text;
    if (tokenizer->IsSpecial(id)) spelled += ' ';
    if (const auto found = tokenizer->TokenId(text)) {
      TN_CHECK(*found >= 0 && *found < tokenizer->vocab_size(), "an id is within the vocabulary");
    }
  }
  DecodeIds(tokenizer, ids, stream_is_whole);
  for (const int64_t id : {int64_t{-1}, int64_t{tokenizer->vocab_size()}, INT64_MAX}) {
    CheckError(tokenizer->Decode(std::span(&id, 1)).status());
  }
  for (const std::string_view text :
       {std::string_view(), std::string_view("Hello world's  end\n\n\t 12345.67 a"),
        std::string_view(
            "\xC3\xA9 e\xCC\x81 \xE6\x97\xA5\xE6\x9C\xAC \xF0\x9F\x98\x80\xE2\x80\x8D"),
        std::string_view("<s> </s>[INST]\x01\x7F aaaaaaaaaaaaaaaa"), std::string_view("\xFF"),
        std::string_view(spelled)}) {
    EncodeText(tokenizer, text, stream_is_whole);
  }
  for (const std::string& note : tokenizer->notes()) Read(note);
}

// Numbers of a line, "-" and what is no number for absent.
std::optional<int64_t> NumberAt(std::span<const std::string_view> words, size_t at) {
  if (at >= words.size()) return std::nullopt;
  int64_t number = 0;
  const std::string_view word = words[at];
  const auto result = std::from_chars(word.data(), word.data() + word.size(), number);
  if (result.ec != std::errc()) return std::nullopt;
  return number;
}

std::optional<bool> FlagAt(std::span<const std::string_view> words, size_t at) {
  const auto number = NumberAt(words, at);
  if (!number) return std::nullopt;
  return *number != 0;
}

// "model pre", "bos eos unk pad add_bos add_eos", a line for each token (its type's digit, its
// text), an empty line, a line for each merge.
GgufVocabulary VocabularyOf(std::string_view bytes) {
  std::vector<std::string_view> lines = Split(bytes, '\n');
  lines.resize(std::max<size_t>(lines.size(), 3));
  GgufVocabulary vocabulary;
  const std::vector<std::string_view> names = Split(lines[0], ' ');
  vocabulary.model = names[0];
  if (names.size() > 1) vocabulary.pre = names[1];
  const std::vector<std::string_view> words = Split(lines[1], ' ');
  vocabulary.bos_id = NumberAt(words, 0);
  vocabulary.eos_id = NumberAt(words, 1);
  vocabulary.unk_id = NumberAt(words, 2);
  vocabulary.pad_id = NumberAt(words, 3);
  vocabulary.add_bos = FlagAt(words, 4);
  vocabulary.add_eos = FlagAt(words, 5);
  size_t line = 2;
  for (; line < lines.size() && !lines[line].empty(); ++line) {
    vocabulary.token_types.push_back(lines[line][0] - '0');
    vocabulary.tokens.push_back(lines[line].substr(1));
  }
  for (++line; line < lines.size(); ++line) vocabulary.merges.push_back(lines[line]);
  return vocabulary;
}

// Small enough that no input takes long, large enough that real templates render.
constexpr RenderLimits kLimits = {.max_steps = 200'000,
                                  .max_live_bytes = int64_t{16} << 20,
                                  .max_output_bytes = int64_t{1} << 20,
                                  .max_depth = 1500,
                                  .max_stack_bytes = int64_t{1} << 20};

constexpr std::string_view kConversation = R"({
  "messages": [
    {"role": "system", "content": "You are brief."},
    {"role": "user", "content": "Why is the sky blue?", "n": [1, 2.5, true, null]},
    {"role": "assistant", "content": null, "reasoning_content": "Hm.",
     "tool_calls": [{"id": "1", "type": "function",
                     "function": {"name": "look", "arguments": {"at": "sky", "n": 3}}}]},
    {"role": "tool", "tool_call_id": "1", "name": "look", "content": "blue"},
    {"role": "user", "content": [{"type": "text", "text": "So?\u00e9"}, {"type": "image"}]}],
  "tools": [{"type": "function", "function": {"name": "look", "description": "looks",
             "parameters": {"type": "object", "properties": {"at": {"type": "string"}}}}}],
  "kwargs": {"bos_token": "<s>", "eos_token": "</s>", "enable_thinking": true},
  "add_generation_prompt": true})";

Json MemberOf(const Json& request, std::string_view name) {
  const Json* value = request.Find(name);
  return value == nullptr ? Json() : *value;
}

ChatInput InputOf(const Json& request) {
  ChatInput input;
  input.messages = MemberOf(request, "messages");
  input.tools = MemberOf(request, "tools");
  input.documents = MemberOf(request, "documents");
  input.kwargs = MemberOf(request, "kwargs");
  input.add_generation_prompt = MemberOf(request, "add_generation_prompt") == Json(true);
  input.continue_final_message = MemberOf(request, "continue_final_message") == Json(true);
  const Json now = MemberOf(request, "now");
  input.now = now.is_string() ? now.as_string() : "2024-07-26T12:34:56";
  return input;
}

}  // namespace

void FuzzTokenizerJson(std::string_view bytes) {
  const auto tokenizer = Tokenizer::FromJson(bytes);
  if (!tokenizer.ok()) return CheckError(tokenizer.status());
  WalkTokenizer(*tokenizer, bytes.find("ByteFallback") == std::string_view::npos);
}

void FuzzGgufVocabulary(std::string_view bytes) {
  const auto tokenizer = Tokenizer::FromGguf(VocabularyOf(bytes));
  if (!tokenizer.ok()) return CheckError(tokenizer.status());
  WalkTokenizer(*tokenizer, true);
}

// The template; then, if there is one, a request as `tenon render` takes it.
void FuzzChatTemplate(std::string_view bytes) {
  const std::vector<std::string_view> parts = Parts(bytes);
  const auto chat = ChatTemplate::Parse(std::string(parts[0]), "t");
  if (!chat.ok()) CheckError(chat.status());
  const auto request = ParseJson(parts.size() > 1 ? parts[1] : kConversation);
  if (!request.ok()) return CheckError(request.status());
  ChatInput input = InputOf(*request);
  const auto normal = NormalizeMessages(input.messages);
  if (!normal.ok()) CheckError(normal.status());
  if (!chat.ok()) return;
  const auto rendered = chat->Render(input, kLimits);
  if (!rendered.ok()) return CheckError(rendered.status());
  Read(rendered->text);
  TN_CHECK(static_cast<int64_t>(rendered->text.size()) <= kLimits.max_output_bytes,
           "the text is within its limit");
  for (const auto& [begin, end] : rendered->generation_spans) {
    TN_CHECK(0 <= begin && begin <= end && end <= static_cast<int64_t>(rendered->text.size()),
             "a span lies in the text");
  }
}

}  // namespace tenon::fuzz
