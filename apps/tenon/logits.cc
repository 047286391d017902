#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "command.h"
#include "tenon/checkpoint/writers.h"
#include "tenon/engine/model_runner.h"
#include "tenon/engine/text.h"

namespace tenon::cli {
namespace {

struct LogitsArguments {
  explicit LogitsArguments(CLI::App& command) : model(command, kLogits) {}

  ModelArguments model;
  std::string ids;
  std::string decoder_ids;
  std::string prompt;
  bool prompt_given = false;
  std::string output;
  bool hidden = false;
  bool jsonl = false;
};

// Tensors that wait to be written, with their bytes.
class OutputFile {
 public:
  void AddFloats(std::string name, const Shape& shape, std::vector<float> values) {
    floats_.push_back(std::move(values));
    tensors_.push_back(OutputTensor::Of(
        std::move(name),
        TensorView(DType::kF32, shape, reinterpret_cast<std::byte*>(floats_.back().data()))));
  }
  void AddIds(std::string name, std::vector<int32_t> ids) {
    ints_.push_back(std::move(ids));
    const Shape shape{static_cast<int64_t>(ints_.back().size())};
    tensors_.push_back(OutputTensor::Of(
        std::move(name),
        TensorView(DType::kI32, shape, reinterpret_cast<std::byte*>(ints_.back().data()))));
  }
  Status Write(const std::string& path) const { return WriteSafetensors(path, tensors_); }

 private:
  std::deque<std::vector<float>> floats_;
  std::deque<std::vector<int32_t>> ints_;
  std::vector<OutputTensor> tensors_;
};

// The decoder's own start token when an encoder-decoder model is given encoder ids only.
Result<std::vector<int32_t>> DecoderIds(const ModelRunner& runner, std::vector<int32_t> given,
                                        bool was_given) {
  if (was_given) return given;
  const auto& start = runner.plan().config->decoder_start.value;
  if (!start) return UsageError("decoder ids are needed: the config has no decoder_start_token_id");
  return std::vector<int32_t>{static_cast<int32_t>(*start)};
}

// Runs one sequence from its start; the logits of every row are then in the runner.
Result<std::vector<int32_t>> RunSequence(ModelRunner& runner, const std::vector<int32_t>& ids,
                                         std::vector<int32_t> decoder_ids, bool has_decoder_ids) {
  runner.Reset();
  if (!runner.has_encoder()) {
    if (has_decoder_ids) return UsageError("decoder ids given, but the model has no encoder");
    TN_RETURN_IF_ERROR(runner.Extend(ids, WantLogits::kAll));
    return ids;
  }
  TN_ASSIGN_OR_RETURN(decoder_ids, DecoderIds(runner, std::move(decoder_ids), has_decoder_ids));
  TN_RETURN_IF_ERROR(runner.Encode(ids));
  TN_RETURN_IF_ERROR(runner.Extend(decoder_ids, WantLogits::kAll));
  return decoder_ids;
}

Shape LogitShape(const ModelRunner& runner) {
  return {static_cast<int64_t>(runner.logits().size()) / runner.output_width(),
          runner.output_width()};
}

// A base model has no logits: what it gives are the final hidden states.
const char* ResultName(const ModelRunner& runner) {
  return runner.plan().context->has_logits ? "logits" : "hidden_states";
}

Result<std::unique_ptr<ModelRunner>> LoadRunner(const LogitsArguments& arguments) {
  TN_ASSIGN_OR_RETURN(auto plan, arguments.model.Plan());
  return ModelRunner::Load(std::move(plan));
}

Status LogitsOfLines(const LogitsArguments& arguments) {
  TN_ASSIGN_OR_RETURN(const auto runner, LoadRunner(arguments));
  OutputFile file;
  Status lines = AnswerJsonLines([&](const Json& request, int64_t line) -> Result<Json> {
    const Json* ids = request.Find("ids");
    if (ids == nullptr) return UsageError("\"ids\" is missing");
    const Json* decoder = request.Find("decoder_ids");
    TN_ASSIGN_OR_RETURN(const std::vector<int32_t> input, IdsOf(*ids, "ids"));
    std::vector<int32_t> decoder_ids;
    const bool has_decoder = decoder != nullptr && !decoder->is_null();
    if (has_decoder) {
      TN_ASSIGN_OR_RETURN(decoder_ids, IdsOf(*decoder, "decoder_ids"));
    }
    TN_RETURN_IF_ERROR(RunSequence(*runner, input, std::move(decoder_ids), has_decoder).status());
    const Shape shape = LogitShape(*runner);
    const std::string name = fmt::format("{}.{}", ResultName(*runner), line);
    file.AddFloats(name, shape, {runner->logits().begin(), runner->logits().end()});
    Json reply;
    reply.Set("tensor", name);
    reply.Set("shape", Json::Array{Json(shape[0]), Json(shape[1])});
    return reply;
  });
  // What worked is written also when some lines failed.
  TN_RETURN_IF_ERROR(file.Write(arguments.output));
  return lines;
}

Status LogitsOfOne(const LogitsArguments& arguments) {
  TN_ASSIGN_OR_RETURN(const auto runner, LoadRunner(arguments));
  std::vector<int32_t> ids;
  if (!arguments.ids.empty()) {
    TN_ASSIGN_OR_RETURN(ids, ParseIds(arguments.ids));
  } else {
    TN_ASSIGN_OR_RETURN(const auto tokenizer, LoadTokenizer(*runner->plan().checkpoint));
    TN_ASSIGN_OR_RETURN(Encoding encoding, tokenizer->Encode(arguments.prompt));
    ids = std::move(encoding.ids);
  }
  std::vector<int32_t> decoder_ids;
  if (!arguments.decoder_ids.empty()) {
    TN_ASSIGN_OR_RETURN(decoder_ids, ParseIds(arguments.decoder_ids));
  }
  runner->set_taps(arguments.hidden);
  TN_ASSIGN_OR_RETURN(const std::vector<int32_t> rows,
                      RunSequence(*runner, ids, decoder_ids, !arguments.decoder_ids.empty()));
  OutputFile file;
  file.AddFloats(ResultName(*runner), LogitShape(*runner),
                 {runner->logits().begin(), runner->logits().end()});
  file.AddIds("input_ids", ids);
  if (runner->has_encoder()) file.AddIds("decoder_input_ids", rows);
  for (const auto& [name, tap] : runner->taps()) {
    file.AddFloats(name, {static_cast<int64_t>(tap.rows.size()) / tap.width, tap.width}, tap.rows);
  }
  TN_RETURN_IF_ERROR(file.Write(arguments.output));
  fmt::print(stderr, "{} {} written to {}\n", ResultName(*runner), LogitShape(*runner).Text(),
             arguments.output);
  return {};
}

Status Logits(const LogitsArguments& arguments) {
  const int sources = !arguments.ids.empty() + arguments.prompt_given + arguments.jsonl;
  if (sources != 1) return UsageError("give exactly one of --ids, -p, --jsonl");
  return arguments.jsonl ? LogitsOfLines(arguments) : LogitsOfOne(arguments);
}

}  // namespace

Action AddLogits(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("logits", "Logits of every position, as a safetensors file");
  auto arguments = std::make_shared<LogitsArguments>(*command);
  command->add_option("--ids", arguments->ids, "Token ids: 1,2,3");
  CLI::Option* prompt = command->add_option("-p,--prompt", arguments->prompt,
                                            "Text, encoded with the model's tokenizer");
  command->add_option("--decoder-ids", arguments->decoder_ids,
                      "Encoder-decoder: the decoder's ids (default: its start token)");
  command
      ->add_option("-o,--output", arguments->output, "File to write: logits [T, vocab], input_ids")
      ->required();
  command->add_flag("--hidden", arguments->hidden,
                    "Also embed and hidden.{l} [T, hidden], the output of each layer");
  command->add_flag("--jsonl", arguments->jsonl,
                    "Lines {\"ids\", \"decoder_ids\"?} on stdin -> tensors logits.{line}");
  return [arguments, prompt] {
    arguments->prompt_given = prompt->count() > 0;
    return Logits(*arguments);
  };
}

}  // namespace tenon::cli
