#include "tenon/tokenizer/gguf_pre_tokenizers.h"

#include <fmt/format.h>

#include "tenon/base/text.h"

namespace tenon {
namespace {

// Each regex is the one of the tokenizer.json that the name stands for.
constexpr std::string_view kGpt2 = kGpt2Regex;
constexpr std::string_view kOneDigit = R"(\p{N})";
constexpr std::string_view kThreeDigits = R"(\p{N}{1,3})";
constexpr std::string_view kDigits = R"(\p{N}+)";
constexpr std::string_view kThreeAsciiDigits = "[0-9][0-9][0-9]";
constexpr std::string_view kLineBreak = "[\r\n]";
constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen35 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N})"
    R"(| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kMiniCpm5 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kJais2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S))"
    R"(|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1})";
constexpr std::string_view kGpt4o =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kBailing =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n])"
    R"(|\s+(?!\S)|\s+)";
constexpr std::string_view kSeedCoder =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kExaoneMoe =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+)";
constexpr std::string_view kDeepseek3Cjk =
    R"([\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)";
constexpr std::string_view kDeepseek3 =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
    R"(| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kDeepseekCoderCjk =
    R"([\x{4E00}-\x{9FA5}\x{0800}-\x{4E00}\x{AC00}-\x{D7FF}]+)";
constexpr std::string_view kFalconPunctuation = R"([\p{P}\$\+<=>\^~\|`]+)";
constexpr std::string_view kDefaultPunctuation = R"([\p{P}\$\+<=>\^~\|]+)";
constexpr std::string_view kBloom =
    R"( ?[^(\s|.,!?\x{2026}\x{3002}\x{FF0C}\x{3001}\x{0964}\x{06D4}\x{060C})]+)";
constexpr std::string_view kGroupsOfThree = R"((?=(\d{3})+(?!\d)))";
constexpr std::string_view kThreesFromTheRight = R"(\d{1,3}(?=(?:\d{3})*\b))";
constexpr std::string_view kLines = R"([^\n]+|[\n]+)";

constexpr std::array kRows = {
    GgufPreTokenizer{"default", {kDefaultPunctuation, kGpt2, kDigits, kThreeAsciiDigits}},
    GgufPreTokenizer{"gpt-2", {kGpt2}},
    GgufPreTokenizer{"phi-2", {kGpt2}},
    GgufPreTokenizer{"mpt", {kGpt2}},
    GgufPreTokenizer{"olmo", {kGpt2}},
    GgufPreTokenizer{"jais", {kGpt2}},
    GgufPreTokenizer{"trillion", {kGpt2}},
    GgufPreTokenizer{"granite-docling", {kGpt2}},
    GgufPreTokenizer{"exaone4", {kGpt2}},
    GgufPreTokenizer{"jina-es", {kGpt2}},
    GgufPreTokenizer{"jina-de", {kGpt2}},
    GgufPreTokenizer{"jina-v2-es", {kGpt2}},
    GgufPreTokenizer{"jina-v2-de", {kGpt2}},
    GgufPreTokenizer{"gigachat", {kGpt2}},
    GgufPreTokenizer{"a.x-4.0", {kGpt2}},
    GgufPreTokenizer{"mellum", {kGpt2}},
    GgufPreTokenizer{"modern-bert", {kGpt2}},
    GgufPreTokenizer{"smollm", {kOneDigit, kGpt2}},
    GgufPreTokenizer{"starcoder", {kOneDigit, kGpt2}},
    GgufPreTokenizer{"refact", {kOneDigit, kGpt2}},
    GgufPreTokenizer{"command-r", {kOneDigit, kGpt2}},
    GgufPreTokenizer{"codeshell", {kOneDigit, kGpt2}},
    GgufPreTokenizer{"exaone", {kOneDigit, kGpt2}},
    GgufPreTokenizer{"minerva-7b", {kOneDigit, kGpt2}},
    GgufPreTokenizer{"mellum2", {kOneDigit, kGpt2}},
    GgufPreTokenizer{"llama-bpe", {kLlama3}, true, true},
    GgufPreTokenizer{"llama3", {kLlama3}, true, true},
    GgufPreTokenizer{"llama-v3", {kLlama3}, true, true},
    GgufPreTokenizer{"falcon3", {kLlama3}, true, true},
    GgufPreTokenizer{"falcon-h1", {kLlama3}, true, true},
    GgufPreTokenizer{"pixtral", {kLlama3}, true, true},
    GgufPreTokenizer{"midm-2.0", {kLlama3}, true, true},
    GgufPreTokenizer{"lfm2", {kLlama3}, true, true},
    GgufPreTokenizer{"jina-v5-nano", {kLlama3}, true, true},
    GgufPreTokenizer{"dbrx", {kLlama3}},
    GgufPreTokenizer{"smaug-bpe", {kLlama3}},
    GgufPreTokenizer{"glm4", {kLlama3}},
    GgufPreTokenizer{"chatglm-bpe", {kLlama3}},
    GgufPreTokenizer{"jais-2", {kJais2}},
    GgufPreTokenizer{"minicpm5", {kThreeDigits, kMiniCpm5}, true},
    GgufPreTokenizer{"qwen2", {kQwen2}},
    GgufPreTokenizer{"deepseek-r1-qwen", {kQwen2}},
    GgufPreTokenizer{"megrez", {kQwen2}},
    GgufPreTokenizer{"kormo", {kQwen2}},
    GgufPreTokenizer{"f2llmv2", {kQwen2}},
    GgufPreTokenizer{"stablelm2", {kQwen2}},
    GgufPreTokenizer{"hunyuan", {kQwen2}},
    GgufPreTokenizer{"solar-open", {kQwen2}},
    GgufPreTokenizer{"grok-2", {kQwen2}},
    GgufPreTokenizer{"laguna", {kLines, kQwen2}},
    GgufPreTokenizer{"qwen35", {kQwen35}},
    GgufPreTokenizer{"gpt-4o", {kGpt4o}},
    GgufPreTokenizer{"llama4", {kGpt4o}},
    GgufPreTokenizer{"kanana2", {kGpt4o}},
    GgufPreTokenizer{"talkie", {kGpt4o}},
    GgufPreTokenizer{"minimax-m2", {kGpt4o}},
    GgufPreTokenizer{"granite-embed-multi-97m", {kGpt4o}, true},
    GgufPreTokenizer{"tiny_aya", {kThreesFromTheRight, kGpt4o}},
    GgufPreTokenizer{"cohere2moe", {kThreesFromTheRight, kGpt4o}},
    GgufPreTokenizer{"tekken", {kTekken}, true, true},
    GgufPreTokenizer{"deepseek-v3", {kThreeDigits, kDeepseek3Cjk, kDeepseek3}},
    GgufPreTokenizer{"hunyuan-dense", {kThreeDigits, kDeepseek3Cjk, kDeepseek3}},
    GgufPreTokenizer{"joyai-llm", {kThreeDigits, kDeepseek3Cjk, kDeepseek3}},
    GgufPreTokenizer{"hy_v4", {kThreeDigits, kDeepseek3Cjk, kDeepseek3}},
    // Its fifth stage, single digits, is folded into the second: digits are no letters.
    GgufPreTokenizer{"deepseek-coder",
                     {kLineBreak, R"(\s?\p{L}+|\p{N})", R"(\s?\p{P}+)", kDeepseekCoderCjk}},
    GgufPreTokenizer{"falcon", {kFalconPunctuation, kGpt2, kThreeAsciiDigits}},
    GgufPreTokenizer{"bloom", {kBloom}},
    GgufPreTokenizer{"poro-chat", {kBloom}},
    GgufPreTokenizer{"gpt3-finnish", {kBloom}},
    GgufPreTokenizer{"viking", {kBloom, kOneDigit}},
    GgufPreTokenizer{"superbpe", {kDigits, kGroupsOfThree}},
    GgufPreTokenizer{"bailingmoe", {kBailing}},
    GgufPreTokenizer{"bailingmoe2", {kBailing}},
    GgufPreTokenizer{"llada-moe", {kBailing}},
    GgufPreTokenizer{"seed-coder", {kSeedCoder}},
    GgufPreTokenizer{"exaone-moe", {kExaoneMoe}},
};

}  // namespace

std::vector<std::string_view> GgufPreTokenizerNames() {
  std::vector<std::string_view> names;
  names.reserve(kRows.size());
  for (const GgufPreTokenizer& row : kRows) names.push_back(row.name);
  return names;
}

Result<const GgufPreTokenizer*> FindGgufPreTokenizer(std::string_view name) {
  for (const GgufPreTokenizer& row : kRows) {
    if (row.name == name) return &row;
  }
  const std::vector<std::string_view> names = GgufPreTokenizerNames();
  const std::vector<std::string> candidates(names.begin(), names.end());
  const std::vector<std::string> near = NearNames(name, candidates);
  return Refused(fmt::format("tokenizer.ggml.pre = '{}' is not known{}, known: {}", name,
                             near.empty() ? "" : fmt::format(" (near: {})", Join(near, ", ")),
                             Join(names, ", ")));
}

Result<std::unique_ptr<const PreTokenizer>> MakeGgufPreTokenizer(const GgufPreTokenizer& row) {
  std::vector<std::unique_ptr<const PreTokenizer>> stages;
  for (const std::string_view regex : row.regexes) {
    if (regex.empty()) continue;
    TN_ASSIGN_OR_RETURN(Pattern pattern, Pattern::FromRegex(regex));
    stages.push_back(MakeSplit(std::move(pattern), SplitBehavior::kIsolated, false));
  }
  stages.push_back(MakeByteSpelling());
  return MakeSequence(std::move(stages));
}

}  // namespace tenon
