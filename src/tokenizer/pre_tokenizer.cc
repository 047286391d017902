#include "tenon/tokenizer/pre_tokenizer.h"

#include <array>
#include <utility>

#include "tenon/tokenizer/byte_alphabet.h"
#include "tenon/tokenizer/unicode.h"

namespace tenon {
namespace {

using Made = Result<std::unique_ptr<const PreTokenizer>>;

Status SplitByPattern(const Pattern& pattern, SplitBehavior behavior, bool invert,
                      PieceList* list) {
  PatternSearch search(pattern, list->text);
  PartList parts;
  std::vector<Range> pieces;
  pieces.reserve(list->pieces.size() + list->text.size() / 4);
  for (const Range piece : list->pieces) {
    parts.Start(piece);
    search.Start(piece.Of(list->text));
    Range match;
    while (search.Next(&match)) {
      parts.AddMatch({piece.begin + match.begin, piece.begin + match.end});
    }
    AppendPieces(parts.Finish(invert), behavior, &pieces);
  }
  list->pieces = std::move(pieces);
  return search.status();
}

// Every character for which `is_match` holds is a match of its own.
template <typename Predicate>
void SplitByCharacter(Predicate is_match, SplitBehavior behavior, PieceList* list) {
  PartList parts;
  std::vector<Range> pieces;
  for (const Range piece : list->pieces) {
    parts.Start(piece);
    uint32_t next = 0;
    for (uint32_t at = piece.begin; at < piece.end; at = next) {
      next = at + static_cast<uint32_t>(Utf8Length(list->text[at]));
      if (is_match(CharacterAt(list->text, at))) parts.AddMatch({at, next});
    }
    AppendPieces(parts.Finish(false), behavior, &pieces);
  }
  list->pieces = std::move(pieces);
}

// Gives every piece a new spelling: respell(piece, is_first_of_input, out) appends it.
template <typename Respell>
void RespellPieces(Respell respell, PieceList* list) {
  std::string text;
  text.reserve(list->text.size() * 5 / 4);
  const bool starts_input =
      list->starts_input && !list->pieces.empty() && list->pieces.front().begin == 0;
  for (size_t i = 0; i < list->pieces.size(); ++i) {
    Range& piece = list->pieces[i];
    const auto begin = static_cast<uint32_t>(text.size());
    respell(piece.Of(list->text), starts_input && i == 0, &text);
    piece = {begin, static_cast<uint32_t>(text.size())};
  }
  list->text = std::move(text);
  list->starts_input = starts_input;
}

class Sequence final : public PreTokenizer {
 public:
  explicit Sequence(std::vector<std::unique_ptr<const PreTokenizer>> stages)
      : stages_(std::move(stages)) {}
  Status Apply(PieceList* list) const override {
    for (const auto& stage : stages_) TN_RETURN_IF_ERROR(stage->Apply(list));
    return {};
  }

 private:
  std::vector<std::unique_ptr<const PreTokenizer>> stages_;
};

class Split final : public PreTokenizer {
 public:
  Split(Pattern pattern, SplitBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}
  Status Apply(PieceList* list) const override {
    return SplitByPattern(pattern_, behavior_, invert_, list);
  }

 private:
  Pattern pattern_;
  SplitBehavior behavior_;
  bool invert_;
};

template <bool (*kIsMatch)(char32_t)>
class SplitAtCharacters final : public PreTokenizer {
 public:
  explicit SplitAtCharacters(SplitBehavior behavior) : behavior_(behavior) {}
  Status Apply(PieceList* list) const override {
    SplitByCharacter(kIsMatch, behavior_, list);
    return {};
  }

 private:
  SplitBehavior behavior_;
};

class CharDelimiterSplit final : public PreTokenizer {
 public:
  explicit CharDelimiterSplit(char32_t delimiter) : delimiter_(delimiter) {}
  Status Apply(PieceList* list) const override {
    SplitByCharacter([this](char32_t c) { return c == delimiter_; }, SplitBehavior::kRemoved, list);
    return {};
  }

 private:
  char32_t delimiter_;
};

class ByteLevel final : public PreTokenizer {
 public:
  ByteLevel(bool add_prefix_space, std::optional<Pattern> pattern)
      : add_prefix_space_(add_prefix_space), pattern_(std::move(pattern)) {}
  Status Apply(PieceList* list) const override {
    if (add_prefix_space_) {
      RespellPieces(
          [](std::string_view piece, bool, std::string* out) {
            if (piece.front() != ' ') *out += ' ';
            out->append(piece);
          },
          list);
    }
    if (pattern_) {
      TN_RETURN_IF_ERROR(SplitByPattern(*pattern_, SplitBehavior::kIsolated, false, list));
    }
    RespellPieces(
        [](std::string_view piece, bool, std::string* out) { AppendByteSpelling(piece, out); },
        list);
    return {};
  }

 private:
  bool add_prefix_space_;
  std::optional<Pattern> pattern_;  // absent: no cut
};

enum class PrependScheme { kFirst, kAlways, kNever };

// Hugging Face: pre_tokenizers/metaspace.rs.
class Metaspace final : public PreTokenizer {
 public:
  Metaspace(std::string replacement, PrependScheme scheme, bool split)
      : replacement_(std::move(replacement)),
        scheme_(scheme),
        split_(split),
        pattern_(Pattern::Literal(replacement_)) {}
  Status Apply(PieceList* list) const override {
    RespellPieces(
        [this](std::string_view piece, bool is_first, std::string* out) {
          const bool prepend =
              scheme_ == PrependScheme::kAlways || (scheme_ == PrependScheme::kFirst && is_first);
          if (prepend && piece.front() != ' ' && !piece.starts_with(replacement_)) {
            *out += replacement_;
          }
          for (const char c : piece) {
            if (c == ' ') {
              *out += replacement_;
            } else {
              *out += c;
            }
          }
        },
        list);
    if (!split_) return {};
    return SplitByPattern(pattern_, SplitBehavior::kMergedWithNext, false, list);
  }

 private:
  std::string replacement_;
  PrependScheme scheme_;
  bool split_;
  Pattern pattern_;
};

Result<SplitBehavior> ReadBehavior(const ComponentJson& json, std::string_view absent) {
  static constexpr std::array<std::pair<std::string_view, SplitBehavior>, 5> kNames = {{
      {"Removed", SplitBehavior::kRemoved},
      {"Isolated", SplitBehavior::kIsolated},
      {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
      {"MergedWithNext", SplitBehavior::kMergedWithNext},
      {"Contiguous", SplitBehavior::kContiguous},
  }};
  TN_ASSIGN_OR_RETURN(const std::string name, json.StringOr("behavior", absent));
  for (const auto& [known, behavior] : kNames) {
    if (known == name) return behavior;
  }
  return json.Error("behavior",
                    "allowed: Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous");
}

Made ReadSplit(const ComponentJson& json) {
  TN_ASSIGN_OR_RETURN(Pattern pattern, json.PatternField("pattern"));
  TN_ASSIGN_OR_RETURN(const SplitBehavior behavior, ReadBehavior(json, ""));
  TN_ASSIGN_OR_RETURN(const bool invert, json.BoolOr("invert", false));
  return MakeSplit(std::move(pattern), behavior, invert);
}

Made ReadByteLevel(const ComponentJson& json) {
  TN_ASSIGN_OR_RETURN(const bool add_prefix_space, json.BoolOr("add_prefix_space", true));
  TN_ASSIGN_OR_RETURN(const bool use_regex, json.BoolOr("use_regex", true));
  std::optional<Pattern> pattern;
  if (use_regex) {
    TN_ASSIGN_OR_RETURN(pattern, Pattern::FromRegex(kGpt2Regex));
  }
  return Made(std::make_unique<const ByteLevel>(add_prefix_space, std::move(pattern)));
}

Made ReadDigits(const ComponentJson& json) {
  TN_ASSIGN_OR_RETURN(const bool individual, json.BoolOr("individual_digits", false));
  return Made(std::make_unique<const SplitAtCharacters<IsNumeric>>(
      individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous));
}

Made ReadPunctuation(const ComponentJson& json) {
  TN_ASSIGN_OR_RETURN(const SplitBehavior behavior, ReadBehavior(json, "Isolated"));
  return Made(std::make_unique<const SplitAtCharacters<IsPunctuation>>(behavior));
}

Made ReadWhitespaceSplit(const ComponentJson&) {
  return Made(std::make_unique<const SplitAtCharacters<IsWhiteSpace>>(SplitBehavior::kRemoved));
}

// Runs of word characters, runs of other characters; white space goes.
Made ReadWhitespace(const ComponentJson&) {
  TN_ASSIGN_OR_RETURN(Pattern pattern,
                      Pattern::FromRegex(R"([\w\x{200C}\x{200D}]+|[^\w\x{200C}\x{200D}\s]+)"));
  return MakeSplit(std::move(pattern), SplitBehavior::kRemoved, true);
}

Made ReadBert(const ComponentJson&) {
  std::vector<std::unique_ptr<const PreTokenizer>> stages;
  stages.push_back(
      std::make_unique<const SplitAtCharacters<IsWhiteSpace>>(SplitBehavior::kRemoved));
  stages.push_back(
      std::make_unique<const SplitAtCharacters<IsPunctuation>>(SplitBehavior::kIsolated));
  return MakeSequence(std::move(stages));
}

Made ReadCharDelimiterSplit(const ComponentJson& json) {
  TN_ASSIGN_OR_RETURN(const std::string delimiter, json.CharacterOr("delimiter", ""));
  return Made(std::make_unique<const CharDelimiterSplit>(CharacterAt(delimiter, 0)));
}

// Files before prepend_scheme existed have add_prefix_space instead.
Made ReadMetaspace(const ComponentJson& json) {
  TN_ASSIGN_OR_RETURN(std::string replacement, json.CharacterOr("replacement", "\xE2\x96\x81"));
  TN_ASSIGN_OR_RETURN(const bool add_prefix_space, json.BoolOr("add_prefix_space", true));
  TN_ASSIGN_OR_RETURN(const std::string scheme,
                      json.StringOr("prepend_scheme", add_prefix_space ? "always" : "never"));
  TN_ASSIGN_OR_RETURN(const bool split, json.BoolOr("split", true));
  if (scheme != "always" && scheme != "first" && scheme != "never") {
    return json.Error("prepend_scheme", "allowed: always, first, never");
  }
  const PrependScheme parsed = scheme == "always"  ? PrependScheme::kAlways
                               : scheme == "first" ? PrependScheme::kFirst
                                                   : PrependScheme::kNever;
  return Made(std::make_unique<const Metaspace>(std::move(replacement), parsed, split));
}

Made ReadSequence(const ComponentJson& json);

constexpr std::array kMakers = {
    ComponentMaker<PreTokenizer>{"Sequence", ReadSequence},
    ComponentMaker<PreTokenizer>{"ByteLevel", ReadByteLevel},
    ComponentMaker<PreTokenizer>{"Split", ReadSplit},
    ComponentMaker<PreTokenizer>{"Digits", ReadDigits},
    ComponentMaker<PreTokenizer>{"Punctuation", ReadPunctuation},
    ComponentMaker<PreTokenizer>{"Whitespace", ReadWhitespace},
    ComponentMaker<PreTokenizer>{"WhitespaceSplit", ReadWhitespaceSplit},
    ComponentMaker<PreTokenizer>{"CharDelimiterSplit", ReadCharDelimiterSplit},
    ComponentMaker<PreTokenizer>{"Metaspace", ReadMetaspace},
    ComponentMaker<PreTokenizer>{"BertPreTokenizer", ReadBert},
};

Made ReadSequence(const ComponentJson& json) {
  TN_ASSIGN_OR_RETURN(auto stages, MakeChildren<PreTokenizer>(json, "pretokenizers", kMakers));
  return MakeSequence(std::move(stages));
}

}  // namespace

Result<std::unique_ptr<const PreTokenizer>> MakePreTokenizer(const ComponentJson& json) {
  if (json.is_null()) return std::unique_ptr<const PreTokenizer>();
  return MakeComponent<PreTokenizer>(json, kMakers);
}

std::unique_ptr<const PreTokenizer> MakeSequence(
    std::vector<std::unique_ptr<const PreTokenizer>> stages) {
  return std::make_unique<const Sequence>(std::move(stages));
}

std::unique_ptr<const PreTokenizer> MakeSplit(Pattern pattern, SplitBehavior behavior,
                                              bool invert) {
  return std::make_unique<const Split>(std::move(pattern), behavior, invert);
}

std::unique_ptr<const PreTokenizer> MakeByteSpelling() {
  return std::make_unique<const ByteLevel>(false, std::nullopt);
}

}  // namespace tenon
