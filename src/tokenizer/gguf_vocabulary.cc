// Makes a tokenizer of a GGUF's vocabulary.
#include "tenon/tokenizer/gguf_vocabulary.h"

#include <fmt/format.h>

#include <array>

#include "tenon/tokenizer/bpe.h"
#include "tenon/tokenizer/gguf_pre_tokenizers.h"
#include "tenon/tokenizer/tokenizer_parts.h"

namespace tenon {
namespace {

Status CheckSizes(const GgufVocabulary& gguf) {
  if (gguf.tokens.empty()) return Refused("tokenizer.ggml.tokens is empty");
  const auto check = [&](size_t size, std::string_view name) -> Status {
    if (size == 0 || size == gguf.tokens.size()) return {};
    return Refused(fmt::format("{} has {} entries, tokenizer.ggml.tokens has {}", name, size,
                               gguf.tokens.size()));
  };
  TN_RETURN_IF_ERROR(check(gguf.token_types.size(), "tokenizer.ggml.token_type"));
  return check(gguf.scores.size(), "tokenizer.ggml.scores");
}

Result<Vocabulary> ReadTokens(const GgufVocabulary& gguf) {
  Vocabulary vocabulary;
  size_t bytes = 0;
  for (const std::string_view token : gguf.tokens) bytes += token.size();
  vocabulary.Reserve(gguf.tokens.size(), bytes);
  for (size_t id = 0; id < gguf.tokens.size(); ++id) {
    TN_RETURN_IF_ERROR(vocabulary.Add(gguf.tokens[id], static_cast<int64_t>(id)));
  }
  TN_RETURN_IF_ERROR(vocabulary.Seal(), "tokenizer.ggml.tokens");
  return vocabulary;
}

// Control (and unknown) tokens are special; user-defined ones are found even in plain text.
std::vector<AddedToken> ReadAddedTokens(const GgufVocabulary& gguf) {
  std::vector<AddedToken> added;
  for (size_t id = 0; id < gguf.token_types.size(); ++id) {
    const auto type = static_cast<GgufTokenType>(gguf.token_types[id]);
    const bool special = type == GgufTokenType::kControl || type == GgufTokenType::kUnknown;
    if (!special && type != GgufTokenType::kUserDefined) continue;
    AddedToken token;
    token.content = gguf.tokens[id];
    token.id = static_cast<int64_t>(id);
    token.special = special;
    token.normalized = false;
    added.push_back(std::move(token));
  }
  return added;
}

Result<std::vector<MergePair>> ReadMerges(const GgufVocabulary& gguf,
                                          const Vocabulary& vocabulary) {
  std::vector<MergePair> merges;
  merges.reserve(gguf.merges.size());
  for (const std::string_view merge : gguf.merges) {
    // The left token may itself begin with a blank.
    const size_t blank = merge.find(' ', 1);
    if (blank == std::string_view::npos) {
      return Refused(fmt::format("tokenizer.ggml.merges[{}] = '{}' is not two tokens with a blank",
                                 merges.size(), merge));
    }
    const std::string_view left = merge.substr(0, blank);
    const std::string_view right = merge.substr(blank + 1);
    const auto left_id = vocabulary.Find(left);
    const auto right_id = vocabulary.Find(right);
    if (!left_id || !right_id) {
      return Refused(
          fmt::format("tokenizer.ggml.merges[{}] names '{}', which is not in tokenizer.ggml.tokens",
                      merges.size(), left_id ? right : left));
    }
    merges.push_back({*left_id, *right_id});
  }
  return merges;
}

Status ReadSpecialIds(const GgufVocabulary& gguf, SpecialTokenIds* special) {
  const auto read = [&](std::string_view name, const std::optional<int64_t>& id,
                        std::optional<int32_t>* narrow) -> Status {
    if (!id) return {};
    if (*id < 0 || *id >= static_cast<int64_t>(gguf.tokens.size())) {
      return Refused(fmt::format("tokenizer.ggml.{}_token_id = {} is outside 0..{}", name, *id,
                                 gguf.tokens.size() - 1));
    }
    *narrow = static_cast<int32_t>(*id);
    return {};
  };
  TN_RETURN_IF_ERROR(read("bos", gguf.bos_id, &special->bos));
  TN_RETURN_IF_ERROR(read("eos", gguf.eos_id, &special->eos));
  TN_RETURN_IF_ERROR(read("unknown", gguf.unk_id, &special->unk));
  return read("padding", gguf.pad_id, &special->pad);
}

Status AddEnds(bool add_bos, bool add_eos, const SpecialTokenIds& special, PostProcessor* post) {
  if (add_bos && !special.bos) {
    return Refused("a begin token is to be added, but tokenizer.ggml.bos_token_id is absent");
  }
  if (add_eos && !special.eos) {
    return Refused("an end token is to be added, but tokenizer.ggml.eos_token_id is absent");
  }
  if (add_bos) post->before.push_back(*special.bos);
  if (add_eos) post->after.push_back(*special.eos);
  return {};
}

Result<TokenizerParts> ReadByteLevelBpe(const GgufVocabulary& gguf) {
  // Without them every text would become single bytes, silently.
  if (gguf.merges.empty()) {
    return Refused(fmt::format(
        "tokenizer.ggml.merges is absent or empty, which a vocabulary of kind '{}' needs",
        gguf.model));
  }
  TokenizerParts parts;
  if (gguf.pre.empty()) {
    parts.notes.push_back("tokenizer.ggml.pre is absent: 'default' is meant, as in llama.cpp");
  }
  TN_ASSIGN_OR_RETURN(const GgufPreTokenizer* row,
                      FindGgufPreTokenizer(gguf.pre.empty() ? "default" : gguf.pre));
  TN_ASSIGN_OR_RETURN(parts.pre_tokenizer, MakeGgufPreTokenizer(*row));
  TN_ASSIGN_OR_RETURN(Vocabulary vocabulary, ReadTokens(gguf));
  TN_ASSIGN_OR_RETURN(const std::vector<MergePair> merges, ReadMerges(gguf, vocabulary));
  TN_ASSIGN_OR_RETURN(
      parts.added, AddedTokens::Create(ReadAddedTokens(gguf), vocabulary, nullptr, &parts.notes));
  BpeOptions options;
  options.ignore_merges = row->ignore_merges;
  TN_ASSIGN_OR_RETURN(parts.model,
                      BpeModel::Create(std::move(vocabulary), merges, std::move(options)));
  TN_RETURN_IF_ERROR(ReadSpecialIds(gguf, &parts.special));
  TN_RETURN_IF_ERROR(AddEnds(gguf.add_bos.value_or(row->add_bos), gguf.add_eos.value_or(false),
                             parts.special, &parts.post));
  parts.decoders = MakeByteLevelDecoders();
  return parts;
}

struct ModelReader {
  std::string_view model;
  Result<TokenizerParts> (*read)(const GgufVocabulary& gguf);
};
constexpr std::array kReaders = {ModelReader{"gpt2", ReadByteLevelBpe}};

}  // namespace

Result<TokenizerParts> ReadGgufVocabulary(const GgufVocabulary& gguf) {
  TN_RETURN_IF_ERROR(CheckSizes(gguf));
  std::string supported;
  for (const ModelReader& reader : kReaders) {
    if (reader.model == gguf.model) return reader.read(gguf);
    supported += fmt::format("{}{}", supported.empty() ? "" : ", ", reader.model);
  }
  return Refused(fmt::format("tokenizer.ggml.model = '{}' is not supported yet, supported: {}",
                             gguf.model, supported));
}

}  // namespace tenon
