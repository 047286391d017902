#include "tenon/tokenizer/decoder.h"

#include <algorithm>
#include <array>

#include "tenon/base/check.h"
#include "tenon/tokenizer/byte_alphabet.h"
#include "tenon/tokenizer/unicode.h"

namespace tenon {
namespace {

using Made = Result<std::unique_ptr<const Decoder>>;

// Collects the fragments of a token for stages that need it whole.
class WholeTokenStage : public DecodeStage {
 public:
  void Push(std::string_view fragment, bool ends_token) final {
    if (ends_token && token_.empty()) return PushToken(fragment);
    token_.append(fragment);
    if (!ends_token) return;
    PushToken(token_);
    token_.clear();
  }

 protected:
  virtual void PushToken(std::string_view token) = 0;

 private:
  std::string token_;
};

class AppendStage final : public DecodeStage {
 public:
  explicit AppendStage(std::string* out) : out_(out) {}
  void Push(std::string_view fragment, bool) override { out_->append(fragment); }
  void Finish() override {}

 private:
  std::string* out_;
};

template <typename Stage>
class PlainDecoder final : public Decoder {
 public:
  std::unique_ptr<DecodeStage> Start(DecodeStage* next, DecodeMode mode) const override {
    return std::make_unique<Stage>(next, mode);
  }
};

// Without a decoder HF joins the tokens with blanks.
class JoinStage final : public DecodeStage {
 public:
  JoinStage(DecodeStage* next, DecodeMode) : next_(next) {}
  void Push(std::string_view fragment, bool ends_token) override {
    if (needs_blank_) next_->Push(" ", false);
    needs_blank_ = ends_token;
    next_->Push(fragment, ends_token);
  }
  void Finish() override { next_->Finish(); }

 private:
  DecodeStage* next_;
  bool needs_blank_ = false;
};

// All tokens are one from here on.
class FuseStage final : public DecodeStage {
 public:
  FuseStage(DecodeStage* next, DecodeMode) : next_(next) {}
  void Push(std::string_view fragment, bool) override { next_->Push(fragment, false); }
  void Finish() override {
    next_->Push("", true);
    next_->Finish();
  }

 private:
  DecodeStage* next_;
};

// Bytes of all tokens -> UTF-8. A token with a character outside the alphabet (an added token)
// stands for itself.
class ByteLevelStage final : public WholeTokenStage {
 public:
  ByteLevelStage(DecodeStage* next, DecodeMode) : next_(next) {}
  void Finish() override {
    text_.clear();
    utf8_.Finish(&text_);
    next_->Push(text_, true);
    next_->Finish();
  }

 protected:
  void PushToken(std::string_view token) override {
    bytes_.clear();
    text_.clear();
    const bool spelled = AppendSpelledBytes(token, &bytes_);
    utf8_.Push(spelled ? std::string_view(bytes_) : token, &text_);
    if (!text_.empty()) next_->Push(text_, false);
  }

 private:
  DecodeStage* next_;
  Utf8Stream utf8_;
  std::string bytes_;
  std::string text_;
};

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// The byte of "<0xNN>", or -1.
int ByteOf(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  const int low = HexDigit(token[4]);
  const int high = token[3] == '+' ? 0 : HexDigit(token[3]);  // Rust parses "+A" too
  return low < 0 || high < 0 ? -1 : high * 16 + low;
}

// Runs of "<0xNN>" tokens -> text. HF turns a run with any invalid byte into one U+FFFD per byte; a
// stream can no longer take back the characters that were complete before the invalid byte.
class ByteFallbackStage final : public WholeTokenStage {
 public:
  ByteFallbackStage(DecodeStage* next, DecodeMode mode) : next_(next), mode_(mode) {}
  void Finish() override {
    EndRun();
    next_->Finish();
  }

 protected:
  void PushToken(std::string_view token) override {
    const int byte = ByteOf(token);
    if (byte < 0) {
      EndRun();
      next_->Push(token, true);
      return;
    }
    in_run_ = true;
    run_.push_back(static_cast<char>(byte));
    if (mode_ == DecodeMode::kStream) PassOnCertain();
  }

 private:
  // Complete characters; and replacements, once the run can no longer become valid.
  void PassOnCertain() {
    if (!is_invalid_ && FindInvalidUtf8(run_) == std::string_view::npos) {
      next_->Push(run_, false);
      run_.clear();
    } else if (is_invalid_ || run_.size() >= 4) {
      is_invalid_ = true;
      PassOnReplacements();
    }
  }
  void PassOnReplacements() {
    for (size_t i = 0; i < run_.size(); ++i) next_->Push(kReplacementCharacter, true);
    run_.clear();
  }
  void EndRun() {
    if (!in_run_) return;
    if (!is_invalid_ && FindInvalidUtf8(run_) == std::string_view::npos) {
      next_->Push(run_, true);
    } else {
      PassOnReplacements();
    }
    run_.clear();
    in_run_ = false;
    is_invalid_ = false;
  }

  DecodeStage* next_;
  DecodeMode mode_;
  bool in_run_ = false;
  bool is_invalid_ = false;
  std::string run_;  // bytes of the current run that are not passed on yet
};

class ReplaceDecoder final : public Decoder {
 public:
  ReplaceDecoder(Pattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  std::unique_ptr<DecodeStage> Start(DecodeStage* next, DecodeMode) const override {
    return std::make_unique<Stage>(this, next);
  }

 private:
  class Stage final : public WholeTokenStage {
   public:
    Stage(const ReplaceDecoder* decoder, DecodeStage* next) : decoder_(decoder), next_(next) {}
    void Finish() override { next_->Finish(); }

   protected:
    void PushToken(std::string_view token) override {
      std::string text(token);
      TN_CHECK(ReplaceAll(decoder_->pattern_, decoder_->content_, &text).ok(), "a literal");
      next_->Push(text, true);
    }

   private:
    const ReplaceDecoder* decoder_;
    DecodeStage* next_;
  };

  Pattern pattern_;
  std::string content_;
};

// Takes up to `start` (`stop`) characters `content` off the front (back) of every token.
class StripDecoder final : public Decoder {
 public:
  StripDecoder(std::string content, int64_t start, int64_t stop)
      : content_(std::move(content)), start_(start), stop_(stop) {}
  std::unique_ptr<DecodeStage> Start(DecodeStage* next, DecodeMode) const override {
    return std::make_unique<Stage>(this, next);
  }

 private:
  class Stage final : public DecodeStage {
   public:
    Stage(const StripDecoder* decoder, DecodeStage* next)
        : decoder_(decoder), next_(next), start_left_(decoder->start_) {}
    void Push(std::string_view fragment, bool ends_token) override {
      const std::string_view content = decoder_->content_;
      while (start_left_ > 0 && fragment.starts_with(content)) {
        fragment.remove_prefix(content.size());
        --start_left_;
      }
      if (!fragment.empty()) start_left_ = 0;
      // The end of the token is not known yet: what it may lose waits.
      std::string text = std::move(held_) + std::string(fragment);
      size_t end = text.size();
      for (int64_t i = 0;
           i < decoder_->stop_ && std::string_view(text).substr(0, end).ends_with(content); ++i) {
        end -= content.size();
      }
      held_ = ends_token ? std::string() : text.substr(end);
      next_->Push(std::string_view(text).substr(0, end), ends_token);
      if (ends_token) start_left_ = decoder_->start_;
    }
    void Finish() override { next_->Finish(); }

   private:
    const StripDecoder* decoder_;
    DecodeStage* next_;
    int64_t start_left_;
    std::string held_;
  };

  std::string content_;
  int64_t start_;
  int64_t stop_;
};

// Metaspace characters -> blanks; those of the first token go where encoding had put one in front.
class MetaspaceDecoder final : public Decoder {
 public:
  MetaspaceDecoder(std::string replacement, bool drops_first)
      : replacement_(std::move(replacement)), drops_first_(drops_first) {}
  std::unique_ptr<DecodeStage> Start(DecodeStage* next, DecodeMode) const override {
    return std::make_unique<Stage>(this, next);
  }

 private:
  class Stage final : public WholeTokenStage {
   public:
    Stage(const MetaspaceDecoder* decoder, DecodeStage* next) : decoder_(decoder), next_(next) {}
    void Finish() override { next_->Finish(); }

   protected:
    void PushToken(std::string_view token) override {
      std::string text;
      const std::string_view replacement = decoder_->replacement_;
      for (size_t i = 0; i < token.size();) {
        if (token.substr(i).starts_with(replacement)) {
          if (!is_first_ || !decoder_->drops_first_) text += ' ';
          i += replacement.size();
        } else {
          text += token[i++];
        }
      }
      is_first_ = false;
      next_->Push(text, true);
    }

   private:
    const MetaspaceDecoder* decoder_;
    DecodeStage* next_;
    bool is_first_ = true;
  };

  std::string replacement_;
  bool drops_first_;
};

template <typename Stage>
Made ReadPlain(const ComponentJson&) {
  return Made(std::make_unique<const PlainDecoder<Stage>>());
}

Made ReadReplace(const ComponentJson& json) {
  TN_ASSIGN_OR_RETURN(Pattern pattern, json.PatternField("pattern"));
  if (!pattern.is_literal()) return json.Error("pattern", "a decoder replaces a String only");
  TN_ASSIGN_OR_RETURN(std::string content, json.String("content"));
  return Made(std::make_unique<const ReplaceDecoder>(std::move(pattern), std::move(content)));
}

Made ReadStrip(const ComponentJson& json) {
  TN_ASSIGN_OR_RETURN(std::string content, json.CharacterOr("content", " "));
  TN_ASSIGN_OR_RETURN(const int64_t start, json.IntOr("start", 0));
  TN_ASSIGN_OR_RETURN(const int64_t stop, json.IntOr("stop", 0));
  return Made(std::make_unique<const StripDecoder>(std::move(content), start, stop));
}

Made ReadMetaspace(const ComponentJson& json) {
  TN_ASSIGN_OR_RETURN(std::string replacement, json.CharacterOr("replacement", "\xE2\x96\x81"));
  TN_ASSIGN_OR_RETURN(const bool add_prefix_space, json.BoolOr("add_prefix_space", true));
  TN_ASSIGN_OR_RETURN(const std::string scheme,
                      json.StringOr("prepend_scheme", add_prefix_space ? "always" : "never"));
  return Made(std::make_unique<const MetaspaceDecoder>(std::move(replacement), scheme != "never"));
}

// "Sequence" is taken apart by AddDecoders and stands here for the list of what is supported.
Made ReadSequence(const ComponentJson& json) {
  return json.Error("type", "a Sequence is not one decoder");
}

constexpr std::array kMakers = {
    ComponentMaker<Decoder>{"Sequence", ReadSequence},
    ComponentMaker<Decoder>{"ByteLevel", ReadPlain<ByteLevelStage>},
    ComponentMaker<Decoder>{"ByteFallback", ReadPlain<ByteFallbackStage>},
    ComponentMaker<Decoder>{"Fuse", ReadPlain<FuseStage>},
    ComponentMaker<Decoder>{"Replace", ReadReplace},
    ComponentMaker<Decoder>{"Strip", ReadStrip},
    ComponentMaker<Decoder>{"Metaspace", ReadMetaspace},
};

Status AddDecoders(const ComponentJson& json,
                   std::vector<std::unique_ptr<const Decoder>>* decoders) {
  TN_ASSIGN_OR_RETURN(const std::string type, json.String("type"));
  if (type == "Sequence") {
    TN_ASSIGN_OR_RETURN(const std::vector<ComponentJson> children, json.Children("decoders"));
    for (const ComponentJson& child : children) TN_RETURN_IF_ERROR(AddDecoders(child, decoders));
    return {};
  }
  TN_ASSIGN_OR_RETURN(auto decoder, MakeComponent<Decoder>(json, kMakers));
  decoders->push_back(std::move(decoder));
  return {};
}

}  // namespace

DecodeChain::DecodeChain(const std::vector<std::unique_ptr<const Decoder>>& decoders,
                         DecodeMode mode, std::string* out) {
  stages_.push_back(std::make_unique<AppendStage>(out));
  for (auto decoder = decoders.rbegin(); decoder != decoders.rend(); ++decoder) {
    stages_.push_back((*decoder)->Start(stages_.back().get(), mode));
  }
}

Result<std::vector<std::unique_ptr<const Decoder>>> MakeDecoders(const ComponentJson& json) {
  std::vector<std::unique_ptr<const Decoder>> decoders;
  if (json.is_null()) {
    decoders.push_back(std::make_unique<const PlainDecoder<JoinStage>>());
  } else {
    TN_RETURN_IF_ERROR(AddDecoders(json, &decoders));
  }
  return decoders;
}

std::vector<std::unique_ptr<const Decoder>> MakeByteLevelDecoders() {
  std::vector<std::unique_ptr<const Decoder>> decoders;
  decoders.push_back(std::make_unique<const PlainDecoder<ByteLevelStage>>());
  return decoders;
}

}  // namespace tenon
