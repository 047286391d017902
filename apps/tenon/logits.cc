#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "command.h"
#include "tenon/checkpoint/writers.h"
#include "tenon/engine/model_runner.h"
#include "tenon/engine/text.h"
#include "tenon/zoo/zoo.h"

namespace tenon::cli {
namespace {

struct LogitsOptions {
  ModelOptions model;
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
  TN_RETURN_IF_ERROR(runner.Reset());
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
  return {static_cast<int64_t>(runner.logits().size()) / runner.vocab(), runner.vocab()};
}

Result<std::unique_ptr<ModelRunner>> LoadRunner(const LogitsOptions& options) {
  TN_ASSIGN_OR_RETURN(const PlanOptions plan_options, options.model.Resolve());
  const std::unique_ptr<Registry> registry = MakeRegistry();
  TN_ASSIGN_OR_RETURN(auto plan, PlanModel(options.model.model(), plan_options, *registry));
  return ModelRunner::Load(std::move(plan));
}

Status LogitsOfLines(const LogitsOptions& options) {
  TN_ASSIGN_OR_RETURN(const auto runner, LoadRunner(options));
  OutputFile file;
  const Status lines = AnswerJsonLines([&](const Json& request, int64_t line) -> Result<Json> {
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
    file.AddFloats(fmt::format("logits.{}", line), shape,
                   {runner->logits().begin(), runner->logits().end()});
    Json reply;
    reply.Set("tensor", fmt::format("logits.{}", line));
    reply.Set("shape", Json::Array{Json(shape[0]), Json(shape[1])});
    return reply;
  });
  // What worked is written also when some lines failed.
  TN_RETURN_IF_ERROR(file.Write(options.output));
  return lines;
}

Status LogitsOfOne(const LogitsOptions& options) {
  TN_ASSIGN_OR_RETURN(const auto runner, LoadRunner(options));
  std::vector<int32_t> ids;
  if (!options.ids.empty()) {
    TN_ASSIGN_OR_RETURN(ids, ParseIds(options.ids));
  } else {
    TN_ASSIGN_OR_RETURN(const auto tokenizer, LoadTokenizer(*runner->plan().checkpoint));
    TN_ASSIGN_OR_RETURN(Encoding encoding, tokenizer->Encode(options.prompt));
    ids = std::move(encoding.ids);
  }
  std::vector<int32_t> decoder_ids;
  if (!options.decoder_ids.empty()) {
    TN_ASSIGN_OR_RETURN(decoder_ids, ParseIds(options.decoder_ids));
  }
  runner->set_taps(options.hidden);
  TN_ASSIGN_OR_RETURN(const std::vector<int32_t> rows,
                      RunSequence(*runner, ids, decoder_ids, !options.decoder_ids.empty()));
  OutputFile file;
  file.AddFloats("logits", LogitShape(*runner), {runner->logits().begin(), runner->logits().end()});
  file.AddIds("input_ids", ids);
  if (runner->has_encoder()) file.AddIds("decoder_input_ids", rows);
  for (const auto& [name, tap] : runner->taps()) {
    file.AddFloats(name, {static_cast<int64_t>(tap.rows.size()) / tap.width, tap.width}, tap.rows);
  }
  TN_RETURN_IF_ERROR(file.Write(options.output));
  fmt::print(stderr, "logits {} written to {}\n", LogitShape(*runner).Text(), options.output);
  return {};
}

Status Logits(const LogitsOptions& options) {
  const int sources = !options.ids.empty() + options.prompt_given + options.jsonl;
  if (sources != 1) return UsageError("give exactly one of --ids, -p, --jsonl");
  return options.jsonl ? LogitsOfLines(options) : LogitsOfOne(options);
}

}  // namespace

Action AddLogits(CLI::App& app) {
  auto options = std::make_shared<LogitsOptions>();
  CLI::App* command =
      app.add_subcommand("logits", "Logits of every position, as a safetensors file");
  options->model.AddTo(*command);
  command->add_option("--ids", options->ids, "Token ids: 1,2,3");
  CLI::Option* prompt = command->add_option("-p,--prompt", options->prompt,
                                            "Text, encoded with the model's tokenizer");
  command->add_option("--decoder-ids", options->decoder_ids,
                      "Encoder-decoder: the decoder's ids (default: its start token)");
  command->add_option("-o,--output", options->output, "File to write: logits [T, vocab], input_ids")
      ->required();
  command->add_flag("--hidden", options->hidden,
                    "Also embed and hidden.{l} [T, hidden], the output of each layer");
  command->add_flag("--jsonl", options->jsonl,
                    "Lines {\"ids\", \"decoder_ids\"?} on stdin -> tensors logits.{line}");
  return [options, prompt] {
    options->prompt_given = prompt->count() > 0;
    return Logits(*options);
  };
}

}  // namespace tenon::cli
