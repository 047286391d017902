#include "tenon/checkpoint/gguf_set.h"

#include <fmt/format.h>

#include "tenon/base/file.h"
#include "tenon/checkpoint/file_kind.h"
#include "tenon/checkpoint/part_name.h"

namespace tenon {
namespace {

constexpr std::string_view kPartNumber = "split.no";  // 0-based
constexpr std::string_view kPartCount = "split.count";
constexpr std::string_view kTensorCount = "split.tensors.count";

// 0 when the file is not split.
Result<int64_t> PartCount(const GgufMetadata& metadata, const std::string& path) {
  if (!metadata.Has(kPartCount)) return int64_t{0};
  TN_ASSIGN_OR_RETURN(const int64_t count, metadata.Int(kPartCount));
  if (count < 0 || count > 65535) {  // a uint16 in the files that exist
    return Refused(fmt::format("{}: {} = {}, allowed: 0 to 65535", path, kPartCount, count));
  }
  return count <= 1 ? int64_t{0} : count;
}

}  // namespace

Status CheckGgufIsModel(const GgufMetadata& metadata, const std::string& path) {
  const GgufValue* type = metadata.Find("general.type");
  if (type == nullptr) return {};
  const std::string_view name = type->AsString().value_or("");
  const auto refuse = [&](std::string_view what, std::string_view fix) {
    return Refused(fmt::format("{}: holds {} (general.type = {}); fix: {}", path, what,
                               QuotedName(name), fix));
  };
  if (name == "adapter") {
    return refuse("an adapter without its base model", "open the base model instead");
  }
  if (name == "mmproj") {
    return refuse("a vision projector, not a language model", "open the language model's file");
  }
  if (name == "imatrix") {
    return refuse("an importance matrix, not a model", "open the model's file");
  }
  return {};
}

Result<std::vector<std::string>> GgufPartPaths(const GgufMetadata& metadata,
                                               const std::string& path) {
  TN_ASSIGN_OR_RETURN(const int64_t count, PartCount(metadata, path));
  if (count == 0) return std::vector<std::string>();
  PartName name;
  if (!ParsePartName(path, name) || name.count != count) {
    const GgufValue* value = metadata.Find(kPartNumber);
    const int64_t number = value == nullptr ? 0 : value->AsInt().value_or(0);
    return Refused(fmt::format(
        "{}: is part {} of {} of a split set, but is not named so; fix: give the parts the names "
        "...-{:05}-of-{:05}.gguf",
        path, number + 1, count, number + 1, count));
  }
  std::vector<std::string> paths;
  std::vector<std::string> missing;
  for (int i = 1; i <= name.count; ++i) {
    paths.push_back(name.NameOf(i));
    if (!FileExists(paths.back())) {
      missing.push_back(paths.back().substr(paths.back().rfind('/') + 1));
    }
  }
  if (missing.empty()) return paths;
  return Refused(
      fmt::format("{}: is one part of a split set, {} of {} parts are missing beside it: {}; fix: "
                  "download them",
                  path, missing.size(), count, SomeNames(missing)));
}

Status CheckGgufPart(const GgufMetadata& metadata, const std::string& path, int index, int count) {
  if (!metadata.Has(kPartNumber) || !metadata.Has(kPartCount)) {
    return Refused(
        fmt::format("{}: is named like part {} of {}, but has no {} and {}; fix: download "
                    "the set again",
                    path, index + 1, count, kPartNumber, kPartCount));
  }
  TN_ASSIGN_OR_RETURN(const int64_t number, metadata.Int(kPartNumber));
  TN_ASSIGN_OR_RETURN(const int64_t file_count, metadata.Int(kPartCount));
  if (number == index && file_count == count) return {};
  return Refused(fmt::format(
      "{}: says it is part {} of {}, its name says {} of {}; fix: download the set again", path,
      number + 1, file_count, index + 1, count));
}

Status CheckGgufTensorCount(const GgufMetadata& first, const std::string& path, size_t found) {
  if (!first.Has(kTensorCount)) return {};
  TN_ASSIGN_OR_RETURN(const int64_t expected, first.Int(kTensorCount));
  if (expected >= 0 && static_cast<size_t>(expected) == found) return {};
  return Refused(
      fmt::format("{}: {} = {}, but the parts hold {} tensors; fix: download the set again", path,
                  kTensorCount, expected, found));
}

}  // namespace tenon
