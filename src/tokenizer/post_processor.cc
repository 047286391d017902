#include "tenon/tokenizer/post_processor.h"

#include <fmt/format.h>

#include <array>

namespace tenon {
namespace {

// A processor wraps what the processors before it made.
using Reader = Status (*)(const ComponentJson& json, int32_t id_limit, PostProcessor* made);
struct Row {
  std::string_view type;
  Reader read;
};

Status Read(const ComponentJson& json, int32_t id_limit, PostProcessor* made);

Result<int32_t> CheckedId(const ComponentJson& json, std::string_view key, int64_t id,
                          int32_t id_limit) {
  if (id < 0 || id >= id_limit) {
    return json.Error(key, fmt::format("token id {} is outside 0..{}", id, id_limit - 1));
  }
  return static_cast<int32_t>(id);
}

// ByteLevel and the like only trim offsets.
Status ReadNothing(const ComponentJson&, int32_t, PostProcessor*) { return {}; }

void Wrap(const std::vector<int32_t>& before, const std::vector<int32_t>& after,
          PostProcessor* made) {
  made->before.insert(made->before.begin(), before.begin(), before.end());
  made->after.insert(made->after.end(), after.begin(), after.end());
}

// BertProcessing and RobertaProcessing: "cls" and "sep" are [content, id].
Status ReadClsSep(const ComponentJson& json, int32_t id_limit, PostProcessor* made) {
  TN_ASSIGN_OR_RETURN(const int64_t cls, json.TokenIdOfPair("cls"));
  TN_ASSIGN_OR_RETURN(const int64_t sep, json.TokenIdOfPair("sep"));
  TN_ASSIGN_OR_RETURN(const int32_t before, CheckedId(json, "cls", cls, id_limit));
  TN_ASSIGN_OR_RETURN(const int32_t after, CheckedId(json, "sep", sep, id_limit));
  Wrap({before}, {after}, made);
  return {};
}

Result<std::vector<int32_t>> ReadSpecialIds(const ComponentJson& json, std::string_view name,
                                            int32_t id_limit) {
  TN_ASSIGN_OR_RETURN(const ComponentJson table, json.Child("special_tokens"));
  TN_ASSIGN_OR_RETURN(const ComponentJson entry, table.Child(name));
  TN_ASSIGN_OR_RETURN(const std::vector<int64_t> ids, entry.Ints("ids"));
  std::vector<int32_t> checked;
  for (const int64_t id : ids) {
    TN_ASSIGN_OR_RETURN(const int32_t valid, CheckedId(entry, "ids", id, id_limit));
    checked.push_back(valid);
  }
  return checked;
}

Status ReadTemplate(const ComponentJson& json, int32_t id_limit, PostProcessor* made) {
  TN_ASSIGN_OR_RETURN(const std::vector<ComponentJson> pieces, json.Children("single"));
  std::vector<int32_t> before;
  std::vector<int32_t> after;
  int texts = 0;
  for (const ComponentJson& piece : pieces) {
    if (piece.Has("Sequence")) {
      ++texts;
      continue;
    }
    TN_ASSIGN_OR_RETURN(const ComponentJson special, piece.Child("SpecialToken"));
    TN_ASSIGN_OR_RETURN(const std::string name, special.String("id"));
    TN_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, ReadSpecialIds(json, name, id_limit));
    auto& side = texts == 0 ? before : after;
    side.insert(side.end(), ids.begin(), ids.end());
  }
  if (texts != 1) return json.Error("single", "the text must occur exactly once");
  Wrap(before, after, made);
  return {};
}

Status ReadSequence(const ComponentJson& json, int32_t id_limit, PostProcessor* made) {
  TN_ASSIGN_OR_RETURN(const std::vector<ComponentJson> children, json.Children("processors"));
  for (const ComponentJson& child : children) TN_RETURN_IF_ERROR(Read(child, id_limit, made));
  return {};
}

constexpr std::array kRows = {
    Row{"Sequence", ReadSequence},        Row{"TemplateProcessing", ReadTemplate},
    Row{"ByteLevel", ReadNothing},        Row{"BertProcessing", ReadClsSep},
    Row{"RobertaProcessing", ReadClsSep},
};

Status Read(const ComponentJson& json, int32_t id_limit, PostProcessor* made) {
  TN_ASSIGN_OR_RETURN(const std::string type, json.String("type"));
  std::vector<std::string_view> supported;
  for (const Row& row : kRows) {
    if (row.type == type) return row.read(json, id_limit, made);
    supported.push_back(row.type);
  }
  return UnsupportedType(json, type, supported);
}

}  // namespace

Result<PostProcessor> MakePostProcessor(const ComponentJson& json, int32_t id_limit) {
  PostProcessor made;
  if (!json.is_null()) TN_RETURN_IF_ERROR(Read(json, id_limit, &made));
  return made;
}

}  // namespace tenon
