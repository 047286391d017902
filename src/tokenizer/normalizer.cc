#include "tenon/tokenizer/normalizer.h"

#include <array>

#include "tenon/tokenizer/byte_alphabet.h"
#include "tenon/tokenizer/unicode.h"

namespace tenon {
namespace {

using Made = Result<std::unique_ptr<const Normalizer>>;

class Sequence final : public Normalizer {
 public:
  explicit Sequence(std::vector<std::unique_ptr<const Normalizer>> stages)
      : stages_(std::move(stages)) {}
  Status Apply(std::string* text) const override {
    for (const auto& stage : stages_) TN_RETURN_IF_ERROR(stage->Apply(text));
    return {};
  }

 private:
  std::vector<std::unique_ptr<const Normalizer>> stages_;
};

template <NormalForm kForm>
class UnicodeForm final : public Normalizer {
 public:
  Status Apply(std::string* text) const override {
    *text = Normalize(*text, kForm);
    return {};
  }
};

class Lowercase final : public Normalizer {
 public:
  Status Apply(std::string* text) const override {
    std::string lower;
    lower.reserve(text->size());
    for (size_t i = 0; i < text->size(); i += static_cast<size_t>(Utf8Length((*text)[i]))) {
      AppendLowerCase(CharacterAt(*text, i), &lower);
    }
    *text = std::move(lower);
    return {};
  }
};

// Drops combining marks; what composed them is a decomposing form before it.
class StripAccents final : public Normalizer {
 public:
  Status Apply(std::string* text) const override {
    std::string kept;
    kept.reserve(text->size());
    for (size_t i = 0, size = 0; i < text->size(); i += size) {
      size = static_cast<size_t>(Utf8Length((*text)[i]));
      if (!IsMark(CharacterAt(*text, i))) kept.append(*text, i, size);
    }
    *text = std::move(kept);
    return {};
  }
};

class Strip final : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  Status Apply(std::string* text) const override {
    size_t begin = 0;
    size_t end = text->size();
    while (left_ && begin < end && IsWhiteSpace(CharacterAt(*text, begin))) {
      begin += static_cast<size_t>(Utf8Length((*text)[begin]));
    }
    while (right_ && end > begin) {
      const size_t last = PreviousCharacter(*text, end);
      if (!IsWhiteSpace(CharacterAt(*text, last))) break;
      end = last;
    }
    *text = text->substr(begin, end - begin);
    return {};
  }

 private:
  bool left_;
  bool right_;
};

class Replace final : public Normalizer {
 public:
  Replace(Pattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  Status Apply(std::string* text) const override { return ReplaceAll(pattern_, content_, text); }

 private:
  Pattern pattern_;
  std::string content_;
};

class Prepend final : public Normalizer {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}
  Status Apply(std::string* text) const override {
    if (!text->empty()) text->insert(0, prefix_);
    return {};
  }

 private:
  std::string prefix_;
};

class ByteLevel final : public Normalizer {
 public:
  Status Apply(std::string* text) const override {
    std::string spelled;
    AppendByteSpelling(*text, &spelled);
    *text = std::move(spelled);
    return {};
  }
};

template <typename Plain>
Made ReadPlain(const ComponentJson&) {
  return Made(std::make_unique<const Plain>());
}

Made ReadStrip(const ComponentJson& json) {
  TN_ASSIGN_OR_RETURN(const bool left, json.BoolOr("strip_left", true));
  TN_ASSIGN_OR_RETURN(const bool right, json.BoolOr("strip_right", true));
  return Made(std::make_unique<const Strip>(left, right));
}

Made ReadReplace(const ComponentJson& json) {
  TN_ASSIGN_OR_RETURN(Pattern pattern, json.PatternField("pattern"));
  TN_ASSIGN_OR_RETURN(std::string content, json.String("content"));
  return Made(std::make_unique<const Replace>(std::move(pattern), std::move(content)));
}

Made ReadPrepend(const ComponentJson& json) {
  TN_ASSIGN_OR_RETURN(std::string prefix, json.String("prepend"));
  return Made(std::make_unique<const Prepend>(std::move(prefix)));
}

Made ReadSequence(const ComponentJson& json);

constexpr std::array kMakers = {
    ComponentMaker<Normalizer>{"Sequence", ReadSequence},
    ComponentMaker<Normalizer>{"NFC", ReadPlain<UnicodeForm<NormalForm::kNfc>>},
    ComponentMaker<Normalizer>{"NFD", ReadPlain<UnicodeForm<NormalForm::kNfd>>},
    ComponentMaker<Normalizer>{"NFKC", ReadPlain<UnicodeForm<NormalForm::kNfkc>>},
    ComponentMaker<Normalizer>{"NFKD", ReadPlain<UnicodeForm<NormalForm::kNfkd>>},
    ComponentMaker<Normalizer>{"Lowercase", ReadPlain<Lowercase>},
    ComponentMaker<Normalizer>{"StripAccents", ReadPlain<StripAccents>},
    ComponentMaker<Normalizer>{"Strip", ReadStrip},
    ComponentMaker<Normalizer>{"Replace", ReadReplace},
    ComponentMaker<Normalizer>{"Prepend", ReadPrepend},
    ComponentMaker<Normalizer>{"ByteLevel", ReadPlain<ByteLevel>},
};

Made ReadSequence(const ComponentJson& json) {
  TN_ASSIGN_OR_RETURN(auto stages, MakeChildren<Normalizer>(json, "normalizers", kMakers));
  return Made(std::make_unique<const Sequence>(std::move(stages)));
}

}  // namespace

Result<std::unique_ptr<const Normalizer>> MakeNormalizer(const ComponentJson& json) {
  if (json.is_null()) return std::unique_ptr<const Normalizer>();
  return MakeComponent<Normalizer>(json, kMakers);
}

}  // namespace tenon
