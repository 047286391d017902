#include "tenon/tokenizer/pattern.h"

namespace tenon {

Status ReplaceAll(const Pattern& pattern, std::string_view content, std::string* text) {
  PatternSearch search(pattern, *text);
  search.Start(*text);
  Range match;
  if (!search.Next(&match)) return search.status();
  std::string replaced;
  replaced.reserve(text->size());
  size_t copied = 0;
  do {
    replaced.append(*text, copied, match.begin - copied).append(content);
    copied = match.end;
  } while (search.Next(&match));
  TN_RETURN_IF_ERROR(search.status());
  replaced.append(*text, copied);
  *text = std::move(replaced);
  return {};
}

}  // namespace tenon
