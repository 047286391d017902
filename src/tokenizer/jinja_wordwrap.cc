#include "tenon/tokenizer/jinja_wordwrap.h"

#include <algorithm>

#include "tenon/tokenizer/jinja_unicode.h"

namespace tenon::jinja {
namespace {

using Points = std::u32string;
using PointsView = std::u32string_view;

bool IsBlank(char32_t c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool IsWordPoint(char32_t c) { return c == '_' || IsAlnum(c); }
bool IsLetter(char32_t c) { return IsWordPoint(c) && !IsDecimal(c); }
// What a dash may follow directly.
bool IsWordPunctuation(char32_t c) {
  return IsWordPoint(c) || PointsView(U"!\"'&.,?").find(c) != PointsView::npos;
}

bool IsAllBlank(PointsView text) { return std::all_of(text.begin(), text.end(), IsSpace); }

// Cuts a text into chunks that a line may end after: runs of blanks, words, parts of hyphenated
// words, dashes of two or more hyphens.
class Chunker {
 public:
  explicit Chunker(PointsView text) : text_(text) {}

  std::vector<PointsView> Run(bool break_on_hyphens) const {
    std::vector<PointsView> chunks;
    for (size_t at = 0; at < text_.size();) {
      size_t end = RunEnd(at, true);
      if (end == at) end = break_on_hyphens ? DashOrWordEnd(at) : RunEnd(at, false);
      chunks.push_back(text_.substr(at, end - at));
      at = end;
    }
    return chunks;
  }

 private:
  bool LetterAt(size_t at) const { return at < text_.size() && IsLetter(text_[at]); }

  // The end of the run of blanks (or of anything else) that starts at `at`.
  size_t RunEnd(size_t at, bool blanks) const {
    while (at < text_.size() && IsBlank(text_[at]) == blanks) ++at;
    return at;
  }

  // The end of two or more hyphens between words at `at`; `at` when there are none.
  size_t DashEnd(size_t at) const {
    if (at == 0 || !IsWordPunctuation(text_[at - 1])) return at;
    size_t end = at;
    while (end < text_.size() && text_[end] == '-') ++end;
    return end >= at + 2 && end < text_.size() && IsWordPoint(text_[end]) ? end : at;
  }

  // A hyphen inside a word, after which the word may be cut: two letters before it (or letter,
  // hyphen, letter) and two letters after it.
  bool IsSoftHyphen(size_t at) const {
    if (text_[at] != '-' || at < 2 || !IsLetter(text_[at - 1])) return false;
    const bool before =
        IsLetter(text_[at - 2]) || (at >= 3 && text_[at - 2] == '-' && IsLetter(text_[at - 3]));
    if (!before || !LetterAt(at + 1)) return false;
    return LetterAt(at + 2) || (at + 2 < text_.size() && text_[at + 2] == '-' && LetterAt(at + 3));
  }

  size_t DashOrWordEnd(size_t at) const {
    if (const size_t dash = DashEnd(at); dash > at) return dash;
    for (size_t end = at + 1; end < text_.size(); ++end) {
      if (IsSoftHyphen(end)) return end + 1;
      if (IsBlank(text_[end]) || DashEnd(end) > end) return end;
    }
    return text_.size();
  }

  PointsView text_;
};

// How much of a chunk longer than the line goes on it.
size_t LongWordCut(PointsView chunk, size_t space, const WrapOptions& options) {
  if (!options.break_on_hyphens || chunk.size() <= space || space == 0) return space;
  const size_t hyphen = chunk.substr(0, space).rfind(U'-');
  if (hyphen == PointsView::npos || hyphen == 0) return space;
  const bool only_hyphens = chunk.substr(0, hyphen).find_first_not_of(U'-') == PointsView::npos;
  return only_hyphens ? space : hyphen + 1;
}

std::string Encode(const std::vector<PointsView>& line) {
  std::string out;
  for (const PointsView chunk : line) {
    for (const char32_t c : chunk) AppendUtf8(c, out);
  }
  return out;
}

}  // namespace

std::vector<std::string> WrapParagraph(std::string_view paragraph, const WrapOptions& options) {
  Points text;
  for (size_t at = 0; at < paragraph.size();) {
    const CodePoint point = DecodeAt(paragraph, at);
    text += point.value;
    at += point.num_bytes;
  }
  std::vector<PointsView> chunks = Chunker(text).Run(options.break_on_hyphens);
  std::vector<std::string> lines;
  for (size_t next = 0; next < chunks.size();) {
    std::vector<PointsView> line;
    size_t length = 0;
    if (!lines.empty() && IsAllBlank(chunks[next])) ++next;
    while (next < chunks.size() && length + chunks[next].size() <= options.width) {
      length += chunks[next].size();
      line.push_back(chunks[next++]);
    }
    if (next < chunks.size() && chunks[next].size() > options.width) {
      if (options.break_long_words) {
        const size_t cut = LongWordCut(chunks[next], options.width - length, options);
        line.push_back(chunks[next].substr(0, cut));
        chunks[next] = chunks[next].substr(cut);
      } else if (line.empty()) {
        line.push_back(chunks[next++]);
      }
    }
    if (!line.empty() && IsAllBlank(line.back())) line.pop_back();
    if (!line.empty()) lines.push_back(Encode(line));
  }
  return lines;
}

}  // namespace tenon::jinja
