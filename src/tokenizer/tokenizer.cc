#include "tenon/tokenizer/tokenizer.h"

#include <fmt/format.h>
#include <unistd.h>

#include "tenon/base/file.h"
#include "tenon/tokenizer/tokenizer_parts.h"
#include "tenon/tokenizer/unicode.h"

namespace tenon {
namespace {

// Ranges have 32 bits and a byte may be respelled with three.
constexpr size_t kMaxInputBytes = size_t{1} << 30;

using TokenizerResult = Result<std::shared_ptr<const Tokenizer>>;

TokenizerResult Wrap(Result<TokenizerParts> parts) {
  if (!parts.ok()) return parts.status();
  return TokenizerResult(std::make_shared<const Tokenizer>(*std::move(parts)));
}

Result<TokenizerParts> ReadFileParts(const std::string& path) {
  TN_ASSIGN_OR_RETURN(const std::shared_ptr<const MappedFile> file, MappedFile::Open(path));
  const auto bytes = file->bytes();
  // A mapping reaches to the end of its page.
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t readable = (bytes.size() + page - 1) / page * page;
  const std::string_view json(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  auto parts = ReadTokenizerJson(json, readable);
  return std::move(parts).WithContext(path);
}

// "bos_token": "<s>" or {"content": "<s>", ...}.
std::optional<std::string> TokenName(const Json& config, std::string_view key) {
  const Json* value = config.Find(key);
  if (value != nullptr && value->is_object()) value = value->Find("content");
  if (value == nullptr || !value->is_string()) return std::nullopt;
  return value->as_string();
}

std::optional<int32_t> FindToken(const TokenizerParts& parts, std::string_view token) {
  if (const AddedToken* added = parts.added.FindByContent(token)) {
    return static_cast<int32_t>(added->id);
  }
  return parts.model->vocabulary().Find(token);
}

void ReadTokenNames(const Json& config, TokenizerParts* parts) {
  const auto read = [&](std::string_view key, std::optional<int32_t>* id) {
    const std::optional<std::string> name = TokenName(config, key);
    if (!name) return;
    *id = FindToken(*parts, *name);
    if (!*id) {
      parts->notes.push_back(fmt::format(
          "tokenizer_config.json: {} = '{}' is no token of tokenizer.json", key, *name));
    }
  };
  read("bos_token", &parts->special.bos);
  read("eos_token", &parts->special.eos);
  read("unk_token", &parts->special.unk);
  read("pad_token", &parts->special.pad);
}

}  // namespace

Tokenizer::Tokenizer(TokenizerParts parts)
    : parts_(std::make_unique<const TokenizerParts>(std::move(parts))) {}
Tokenizer::~Tokenizer() = default;

TokenizerResult Tokenizer::FromJson(std::string_view json) {
  return Wrap(ReadTokenizerJson(json, json.size()).WithContext("tokenizer.json"));
}

TokenizerResult Tokenizer::FromFile(const std::string& path) { return Wrap(ReadFileParts(path)); }

TokenizerResult Tokenizer::FromDirectory(const std::string& directory) {
  TN_ASSIGN_OR_RETURN(TokenizerParts parts, ReadFileParts(directory + "/tokenizer.json"));
  const std::string config_path = directory + "/tokenizer_config.json";
  if (FileExists(config_path)) {
    TN_ASSIGN_OR_RETURN(const Json config, ReadJsonFile(config_path));
    ReadTokenNames(config, &parts);
  }
  return Wrap(std::move(parts));
}

TokenizerResult Tokenizer::FromGguf(const GgufVocabulary& vocabulary) {
  return Wrap(ReadGgufVocabulary(vocabulary).WithContext("GGUF vocabulary"));
}

Result<Encoding> Tokenizer::Encode(std::string_view text, const EncodeOptions& options) const {
  if (text.size() > kMaxInputBytes) {
    return UsageError(
        fmt::format("text of {} bytes, at most {} can be encoded", text.size(), kMaxInputBytes));
  }
  const size_t invalid = FindInvalidUtf8(text);
  if (invalid != std::string_view::npos) {
    return UsageError(fmt::format("text is not valid UTF-8 at byte {}", invalid));
  }
  Encoding encoding;
  const auto add = [&](const std::vector<int32_t>& ids) {
    if (!options.add_special_tokens) return;
    for (const int32_t id : ids) {
      encoding.ids.push_back(id);
      if (options.with_pieces) encoding.pieces.emplace_back(TokenText(id));
    }
  };
  add(parts_->post.before);
  // First the tokens that are matched in the text as it is.
  std::vector<AddedMatch> matches;
  parts_->added.Cut(text, false, options.parse_special, &matches);
  for (const AddedMatch& match : matches) {
    const std::string_view part = match.range.Of(text);
    if (match.token == nullptr) {
      TN_RETURN_IF_ERROR(EncodeText(part, match.range.begin == 0, options, &encoding));
      continue;
    }
    encoding.ids.push_back(static_cast<int32_t>(match.token->id));
    if (options.with_pieces) encoding.pieces.emplace_back(part);
  }
  add(parts_->post.after);
  return encoding;
}

// Normalises, then cuts out the tokens that are matched in normalised text.
Status Tokenizer::EncodeText(std::string_view text, bool starts_input, const EncodeOptions& options,
                             Encoding* encoding) const {
  std::string normalized;
  if (parts_->normalizer != nullptr) {
    normalized = text;
    TN_RETURN_IF_ERROR(parts_->normalizer->Apply(&normalized));
    text = normalized;
  }
  std::vector<AddedMatch> matches;
  parts_->added.Cut(text, true, options.parse_special, &matches);
  for (const AddedMatch& match : matches) {
    const std::string_view part = match.range.Of(text);
    if (match.token == nullptr) {
      TN_RETURN_IF_ERROR(
          EncodePlain(part, starts_input && match.range.begin == 0, options, encoding));
      continue;
    }
    encoding->ids.push_back(static_cast<int32_t>(match.token->id));
    if (options.with_pieces) encoding->pieces.emplace_back(part);
  }
  return {};
}

// Text without added tokens.
Status Tokenizer::EncodePlain(std::string_view text, bool starts_input,
                              const EncodeOptions& options, Encoding* encoding) const {
  PieceList list;
  list.text = text;
  list.pieces = {{0, static_cast<uint32_t>(text.size())}};
  list.starts_input = starts_input;
  if (parts_->pre_tokenizer != nullptr) {
    TN_RETURN_IF_ERROR(parts_->pre_tokenizer->Apply(&list));
  }
  const size_t first = encoding->ids.size();
  parts_->model->Tokenize(list.text, list.pieces, &encoding->ids);
  if (!options.with_pieces) return {};
  const Vocabulary& vocabulary = parts_->model->vocabulary();
  for (size_t i = first; i < encoding->ids.size(); ++i) {
    encoding->pieces.emplace_back(vocabulary.SpellingOf(encoding->ids[i]));
  }
  return {};
}

Result<std::optional<std::string_view>> Tokenizer::SpellingToDecode(
    int64_t id, const DecodeOptions& options) const {
  if (id < 0 || id >= vocab_size()) {
    return UsageError(fmt::format("token id {} is outside 0..{}", id, vocab_size() - 1));
  }
  using Spelling = std::optional<std::string_view>;
  const auto narrow = static_cast<int32_t>(id);
  if (const AddedToken* added = parts_->added.FindById(narrow)) {
    if (added->special && options.skip_special) return Spelling();
    return Spelling(added->content);
  }
  const Vocabulary& vocabulary = parts_->model->vocabulary();
  if (!vocabulary.Contains(narrow)) return Spelling();
  return Spelling(vocabulary.SpellingOf(narrow));
}

template <typename Id>
Result<std::string> Tokenizer::DecodeIds(std::span<const Id> ids,
                                         const DecodeOptions& options) const {
  std::string text;
  DecodeChain chain(parts_->decoders, DecodeMode::kWhole, &text);
  for (const Id id : ids) {
    TN_ASSIGN_OR_RETURN(const auto spelling, SpellingToDecode(int64_t{id}, options));
    if (spelling) chain.PushToken(*spelling);
  }
  chain.Finish();
  return text;
}

Result<std::string> Tokenizer::Decode(std::span<const int32_t> ids,
                                      const DecodeOptions& options) const {
  return DecodeIds(ids, options);
}
Result<std::string> Tokenizer::Decode(std::span<const int64_t> ids,
                                      const DecodeOptions& options) const {
  return DecodeIds(ids, options);
}

int32_t Tokenizer::vocab_size() const {
  return std::max(parts_->model->vocabulary().id_limit(), parts_->added.id_limit());
}

std::optional<int32_t> Tokenizer::TokenId(std::string_view token) const {
  return FindToken(*parts_, token);
}

std::string_view Tokenizer::TokenText(int64_t id) const {
  if (id < 0 || id >= vocab_size()) return {};
  const auto narrow = static_cast<int32_t>(id);
  const AddedToken* added = parts_->added.FindById(narrow);
  return added != nullptr ? std::string_view(added->content)
                          : parts_->model->vocabulary().SpellingOf(narrow);
}

bool Tokenizer::IsSpecial(int64_t id) const {
  if (id < 0 || id >= vocab_size()) return false;
  const AddedToken* added = parts_->added.FindById(static_cast<int32_t>(id));
  return added != nullptr && added->special;
}

const SpecialTokenIds& Tokenizer::special() const { return parts_->special; }
std::span<const int32_t> Tokenizer::tokens_before() const { return parts_->post.before; }
std::span<const int32_t> Tokenizer::tokens_after() const { return parts_->post.after; }
const std::vector<std::string>& Tokenizer::notes() const { return parts_->notes; }

StreamDecoder::StreamDecoder(std::shared_ptr<const Tokenizer> tokenizer,
                             const DecodeOptions& options)
    : tokenizer_(std::move(tokenizer)),
      options_(options),
      out_(std::make_unique<std::string>()),
      chain_(std::make_unique<DecodeChain>(tokenizer_->parts_->decoders, DecodeMode::kStream,
                                           out_.get())) {}
StreamDecoder::~StreamDecoder() = default;
StreamDecoder::StreamDecoder(StreamDecoder&&) noexcept = default;
StreamDecoder& StreamDecoder::operator=(StreamDecoder&&) noexcept = default;

Result<std::string> StreamDecoder::Push(int64_t id) {
  TN_ASSIGN_OR_RETURN(const auto spelling, tokenizer_->SpellingToDecode(id, options_));
  if (spelling) chain_->PushToken(*spelling);
  return std::exchange(*out_, {});
}

std::string StreamDecoder::Finish() {
  chain_->Finish();
  return std::exchange(*out_, {});
}

}  // namespace tenon
