// Reads tokenizer.json: small components through Json, vocabulary and merges straight from
// simdjson.
#include <fmt/format.h>
// Error codes only: conversions that would throw do not compile.
#define SIMDJSON_EXCEPTIONS 0
#include <simdjson.h>

#include <array>

#include "tenon/tokenizer/bpe.h"
#include "tenon/tokenizer/tokenizer_parts.h"

namespace tenon {
namespace {

namespace on_demand = simdjson::ondemand;

#define TN_RETURN_IF_JSON_ERROR(expression, place)                        \
  do {                                                                    \
    const simdjson::error_code tn_error = (expression);                   \
    if (tn_error != simdjson::SUCCESS) return JsonError(tn_error, place); \
  } while (false)

Status JsonError(simdjson::error_code error, std::string_view place) {
  return Refused(fmt::format("{}: {}", place, simdjson::error_message(error)));
}

// Anything unreadable is not null; reading it as what it should be gives the error.
bool IsNull(on_demand::value value) {
  bool is_null = false;
  return value.is_null().get(is_null) == simdjson::SUCCESS && is_null;
}

// The "model" object. Vocabulary and merges are read where they stand; the rest waits.
struct ModelFields {
  Json::Object scalars;
  Vocabulary vocabulary;
  bool has_vocabulary = false;
  bool has_merges = false;
  std::vector<MergePair> merges;
};

Result<Json> ReadSmallValue(on_demand::value value, std::string_view place) {
  on_demand::json_type type;
  TN_RETURN_IF_JSON_ERROR(value.type().get(type), place);
  std::string_view raw;
  switch (type) {
    case on_demand::json_type::object: {
      on_demand::object object;
      TN_RETURN_IF_JSON_ERROR(value.get_object().get(object), place);
      TN_RETURN_IF_JSON_ERROR(object.raw_json().get(raw), place);
      break;
    }
    case on_demand::json_type::array: {
      on_demand::array array;
      TN_RETURN_IF_JSON_ERROR(value.get_array().get(array), place);
      TN_RETURN_IF_JSON_ERROR(array.raw_json().get(raw), place);
      break;
    }
    case on_demand::json_type::string:
      TN_RETURN_IF_JSON_ERROR(value.get_string().get(raw), place);
      return Json(raw);
    default:
      raw = value.raw_json_token();
  }
  auto json = ParseJson(raw);
  return std::move(json).WithContext(place);
}

Status ReadAddedToken(on_demand::object object, std::string_view place, AddedToken* token) {
  bool has_content = false;
  for (auto field : object) {
    std::string_view key;
    TN_RETURN_IF_JSON_ERROR(field.unescaped_key().get(key), place);
    on_demand::value value;
    TN_RETURN_IF_JSON_ERROR(field.value().get(value), place);
    bool* flag = key == "special"       ? &token->special
                 : key == "normalized"  ? &token->normalized
                 : key == "single_word" ? &token->single_word
                 : key == "lstrip"      ? &token->lstrip
                 : key == "rstrip"      ? &token->rstrip
                                        : nullptr;
    const std::string where = fmt::format("{}.{}", place, key);
    if (flag != nullptr) {
      TN_RETURN_IF_JSON_ERROR(value.get_bool().get(*flag), where);
    } else if (key == "id") {
      TN_RETURN_IF_JSON_ERROR(value.get_int64().get(token->id), where);
    } else if (key == "content") {
      std::string_view content;
      TN_RETURN_IF_JSON_ERROR(value.get_string().get(content), where);
      token->content = content;
      has_content = true;
    }
  }
  if (token->id < 0 || token->id > kMaxTokenId) {
    return Refused(fmt::format("{}.id = {}, allowed 0..{}", place, token->id, kMaxTokenId));
  }
  if (!has_content) return Refused(fmt::format("{}.content is absent", place));
  return {};
}

Status ReadAddedTokens(on_demand::value value, std::vector<AddedToken>* tokens) {
  on_demand::array array;
  if (IsNull(value)) return {};
  TN_RETURN_IF_JSON_ERROR(value.get_array().get(array), "added_tokens");
  for (auto element : array) {
    const std::string place = fmt::format("added_tokens[{}]", tokens->size());
    on_demand::object object;
    TN_RETURN_IF_JSON_ERROR(element.get_object().get(object), place);
    AddedToken token;
    TN_RETURN_IF_ERROR(ReadAddedToken(object, place, &token));
    tokens->push_back(std::move(token));
  }
  return {};
}

Status ReadVocabulary(on_demand::value value, Vocabulary* vocabulary) {
  on_demand::object object;
  TN_RETURN_IF_JSON_ERROR(value.get_object().get(object), "model.vocab (an object for BPE)");
  for (auto field : object) {
    std::string_view token;
    TN_RETURN_IF_JSON_ERROR(field.unescaped_key().get(token), "model.vocab");
    int64_t id = 0;
    const simdjson::error_code error = field.value().get_int64().get(id);
    if (error != simdjson::SUCCESS) {
      return JsonError(error, fmt::format("model.vocab: the id of '{}'", token));
    }
    TN_RETURN_IF_ERROR(vocabulary->Add(token, id), "model.vocab");
  }
  TN_RETURN_IF_ERROR(vocabulary->Seal(), "model.vocab");
  return {};
}

// One merge, "left right" or ["left", "right"].
Status ReadMerge(on_demand::value value, std::string_view* left, std::string_view* right) {
  on_demand::json_type type;
  TN_RETURN_IF_JSON_ERROR(value.type().get(type), "model.merges");
  if (type == on_demand::json_type::string) {
    std::string_view text;
    TN_RETURN_IF_JSON_ERROR(value.get_string().get(text), "model.merges");
    const size_t blank = text.find(' ');
    if (blank == std::string_view::npos || text.find(' ', blank + 1) != std::string_view::npos) {
      return Refused(fmt::format("model.merges: '{}' is not two tokens with one blank", text));
    }
    *left = text.substr(0, blank);
    *right = text.substr(blank + 1);
    return {};
  }
  on_demand::array pair;
  TN_RETURN_IF_JSON_ERROR(value.get_array().get(pair), "model.merges");
  int parts = 0;
  for (auto element : pair) {
    std::string_view part;
    TN_RETURN_IF_JSON_ERROR(element.get_string().get(part), "model.merges");
    if (parts < 2) (parts == 0 ? *left : *right) = part;
    ++parts;
  }
  if (parts != 2) {
    return Refused(fmt::format("model.merges: an entry has {} tokens, expected 2", parts));
  }
  return {};
}

// Looks up the tokens of merges, some at a time: the table is larger than the caches, and look-ups
// that are on their way together cost little more than one.
class MergeResolver {
 public:
  MergeResolver(const Vocabulary& vocabulary, std::vector<MergePair>* merges)
      : vocabulary_(vocabulary), merges_(merges) {}

  Status Add(std::string_view left, std::string_view right) {
    pending_[count_] = {left, right, HashBytes(left), HashBytes(right)};
    vocabulary_.Prefetch(pending_[count_].left_hash);
    vocabulary_.Prefetch(pending_[count_].right_hash);
    return ++count_ == pending_.size() ? Flush() : Status();
  }

  Status Flush() {
    for (size_t i = 0; i < count_; ++i) {
      const Pending& merge = pending_[i];
      const auto left = vocabulary_.Find(merge.left, merge.left_hash);
      const auto right = vocabulary_.Find(merge.right, merge.right_hash);
      if (!left || !right) {
        return Refused(fmt::format("model.merges[{}] names '{}', which is not in model.vocab",
                                   merges_->size(), left ? merge.right : merge.left));
      }
      merges_->push_back({*left, *right});
    }
    count_ = 0;
    return {};
  }

 private:
  struct Pending {
    std::string_view left;
    std::string_view right;
    uint32_t left_hash;
    uint32_t right_hash;
  };
  const Vocabulary& vocabulary_;
  std::vector<MergePair>* merges_;
  std::array<Pending, 16> pending_;
  size_t count_ = 0;
};

Status ReadMerges(on_demand::value value, const Vocabulary& vocabulary,
                  std::vector<MergePair>* merges) {
  on_demand::array array;
  TN_RETURN_IF_JSON_ERROR(value.get_array().get(array), "model.merges");
  MergeResolver resolver(vocabulary, merges);
  for (auto element : array) {
    on_demand::value entry;
    TN_RETURN_IF_JSON_ERROR(element.get(entry), "model.merges");
    std::string_view left;
    std::string_view right;
    TN_RETURN_IF_ERROR(ReadMerge(entry, &left, &right));
    if (left == "#version:") continue;  // the head line of merges.txt
    TN_RETURN_IF_ERROR(resolver.Add(left, right));
  }
  return resolver.Flush();
}

// Reads what it can in one pass; `only_merges` is the second pass of a file whose merges come
// first.
Status ReadModelFields(on_demand::object object, bool only_merges, ModelFields* fields) {
  for (auto field : object) {
    std::string_view key;
    TN_RETURN_IF_JSON_ERROR(field.unescaped_key().get(key), "model");
    on_demand::value value;
    TN_RETURN_IF_JSON_ERROR(field.value().get(value), "model");
    if (key == "vocab" && !only_merges) {
      if (fields->has_vocabulary) return Refused("model.vocab occurs twice");
      TN_RETURN_IF_ERROR(ReadVocabulary(value, &fields->vocabulary));
      fields->has_vocabulary = true;
    } else if (key == "merges") {
      if (!fields->has_vocabulary) continue;
      if (fields->has_merges) return Refused("model.merges occurs twice");
      TN_RETURN_IF_ERROR(ReadMerges(value, fields->vocabulary, &fields->merges));
      fields->has_merges = true;
    } else if (key != "vocab" && !only_merges) {
      TN_ASSIGN_OR_RETURN(Json scalar, ReadSmallValue(value, "model." + std::string(key)));
      fields->scalars.emplace_back(key, std::move(scalar));
    }
  }
  return {};
}

Result<std::unique_ptr<const TokenModel>> MakeBpe(const ComponentJson& json, ModelFields fields) {
  BpeOptions options;
  TN_ASSIGN_OR_RETURN(options.ignore_merges, json.BoolOr("ignore_merges", false));
  TN_ASSIGN_OR_RETURN(options.fuse_unknown, json.BoolOr("fuse_unk", false));
  TN_ASSIGN_OR_RETURN(options.byte_fallback, json.BoolOr("byte_fallback", false));
  TN_ASSIGN_OR_RETURN(options.continuing_subword_prefix,
                      json.StringOr("continuing_subword_prefix", ""));
  TN_ASSIGN_OR_RETURN(options.end_of_word_suffix, json.StringOr("end_of_word_suffix", ""));
  if (json.Has("unk_token")) {
    TN_ASSIGN_OR_RETURN(options.unknown_token, json.String("unk_token"));
  }
  TN_ASSIGN_OR_RETURN(const double dropout, json.NumberOr("dropout", 0));
  if (dropout != 0) return json.Error("dropout", "allowed: null (encoding is deterministic)");
  if (!fields.has_merges) return json.Error("merges", "a BPE model needs its merges");
  auto model = BpeModel::Create(std::move(fields.vocabulary), fields.merges, std::move(options));
  if (!model.ok()) return model.status().WithContext("model");
  return Result<std::unique_ptr<const TokenModel>>(*std::move(model));
}

Result<std::unique_ptr<const TokenModel>> ReadModel(on_demand::value value) {
  on_demand::object object;
  TN_RETURN_IF_JSON_ERROR(value.get_object().get(object), "model");
  // The type decides how the rest is read. Old files leave it out when it is BPE.
  std::string_view type = "BPE";
  const simdjson::error_code error = object.find_field_unordered("type").get_string().get(type);
  if (error != simdjson::NO_SUCH_FIELD) TN_RETURN_IF_JSON_ERROR(error, "model.type");
  if (type != "BPE") {
    return Refused(fmt::format("model.type = '{}' is not supported, supported: BPE", type));
  }
  TN_RETURN_IF_JSON_ERROR(object.reset().error(), "model");
  ModelFields fields;
  TN_RETURN_IF_ERROR(ReadModelFields(object, false, &fields));
  if (!fields.has_vocabulary) return Refused("model.vocab is absent");
  if (!fields.has_merges) {
    TN_RETURN_IF_JSON_ERROR(object.reset().error(), "model");
    TN_RETURN_IF_ERROR(ReadModelFields(object, true, &fields));
  }
  const Json scalars(std::move(fields.scalars));
  return MakeBpe(ComponentJson(scalars, "model"), std::move(fields));
}

// The top level, as far as it can be read without knowing the other sections.
struct Sections {
  std::vector<AddedToken> added_tokens;
  Json normalizer;
  Json pre_tokenizer;
  Json post_processor;
  Json decoder;
  std::unique_ptr<const TokenModel> model;
  std::vector<std::string> notes;
};

Status ReadSection(std::string_view key, on_demand::value value, Sections* sections) {
  Json* component = key == "normalizer"       ? &sections->normalizer
                    : key == "pre_tokenizer"  ? &sections->pre_tokenizer
                    : key == "post_processor" ? &sections->post_processor
                    : key == "decoder"        ? &sections->decoder
                                              : nullptr;
  if (component != nullptr) {
    TN_ASSIGN_OR_RETURN(*component, ReadSmallValue(value, key));
    if (!component->is_null() && !component->is_object()) {
      return Refused(
          fmt::format("{} is a JSON {}, expected an object or null", key, component->KindName()));
    }
  } else if (key == "added_tokens") {
    TN_RETURN_IF_ERROR(ReadAddedTokens(value, &sections->added_tokens));
  } else if (key == "model") {
    TN_ASSIGN_OR_RETURN(sections->model, ReadModel(value));
  } else if ((key == "truncation" || key == "padding") && !IsNull(value)) {
    sections->notes.push_back(fmt::format("\"{}\" is ignored: it is left over from training", key));
  }
  return {};
}

Status ReadSections(simdjson::padded_string_view json, Sections* sections) {
  on_demand::parser parser;
  on_demand::document document;
  TN_RETURN_IF_JSON_ERROR(parser.iterate(json).get(document), "not JSON");
  on_demand::object object;
  TN_RETURN_IF_JSON_ERROR(document.get_object().get(object), "the top level must be an object");
  for (auto field : object) {
    std::string_view key;
    TN_RETURN_IF_JSON_ERROR(field.unescaped_key().get(key), "top level");
    on_demand::value value;
    TN_RETURN_IF_JSON_ERROR(field.value().get(value), "top level");
    TN_RETURN_IF_ERROR(ReadSection(key, value, sections));
  }
  const char* rest = nullptr;
  if (document.current_location().get(rest) == simdjson::SUCCESS) {
    return Refused("there is text after the JSON object");
  }
  if (sections->model == nullptr) return Refused("\"model\" is absent");
  return {};
}

Result<TokenizerParts> MakeParts(Sections sections) {
  TokenizerParts parts;
  parts.model = std::move(sections.model);
  parts.notes = std::move(sections.notes);
  TN_ASSIGN_OR_RETURN(parts.normalizer,
                      MakeNormalizer(ComponentJson(sections.normalizer, "normalizer")));
  TN_ASSIGN_OR_RETURN(parts.pre_tokenizer,
                      MakePreTokenizer(ComponentJson(sections.pre_tokenizer, "pre_tokenizer")));
  TN_ASSIGN_OR_RETURN(parts.decoders, MakeDecoders(ComponentJson(sections.decoder, "decoder")));
  TN_ASSIGN_OR_RETURN(
      parts.added, AddedTokens::Create(std::move(sections.added_tokens), parts.model->vocabulary(),
                                       parts.normalizer.get(), &parts.notes));
  const int32_t id_limit = std::max(parts.model->vocabulary().id_limit(), parts.added.id_limit());
  TN_ASSIGN_OR_RETURN(
      parts.post,
      MakePostProcessor(ComponentJson(sections.post_processor, "post_processor"), id_limit));
  return parts;
}

}  // namespace

Result<TokenizerParts> ReadTokenizerJson(std::string_view json, size_t readable) {
  if (json.starts_with("version https://git-lfs")) {
    return Refused("this is a Git LFS pointer, not the file; fix: git lfs pull");
  }
  Sections sections;
  if (readable >= json.size() + simdjson::SIMDJSON_PADDING) {
    TN_RETURN_IF_ERROR(
        ReadSections(simdjson::padded_string_view(json.data(), json.size(), readable), &sections));
  } else {
    const simdjson::padded_string copy(json);
    TN_RETURN_IF_ERROR(ReadSections(copy, &sections));
  }
  return MakeParts(std::move(sections));
}

}  // namespace tenon
