#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>

#include "command.h"
#include "tenon/base/text.h"
#include "tenon/checkpoint/checkpoint.h"
#include "tenon/checkpoint/writers.h"
#include "tenon/numeric/decode.h"

namespace tenon::cli {
namespace {

struct InspectArguments {
  explicit InspectArguments(CLI::App& command) : options(command, kInspect) {}

  TableOptions options;
  std::string path;
  std::string tensor;
  std::string output;
};

// Long values would bury the rest.
constexpr int64_t kShownElements = 8;

std::string ValueText(const GgufValue& value) {
  if (const auto flag = value.AsBool()) return *flag ? "true" : "false";
  if (const auto number = value.AsInt()) return std::to_string(*number);
  if (const auto number = value.AsFloat()) return fmt::format("{}", *number);
  if (const auto text = value.AsString()) {
    return text->size() <= 120
               ? JsonQuote(*text)
               : fmt::format("{}… ({} bytes)", JsonQuote(text->substr(0, 100)), text->size());
  }
  if (value.count() <= kShownElements) {
    if (const auto numbers = value.AsInts()) return fmt::format("[{}]", fmt::join(*numbers, ", "));
    if (const auto numbers = value.AsFloats())
      return fmt::format("[{}]", fmt::join(*numbers, ", "));
  }
  return value.KindText();
}

Json TensorJson(const StoredTensor& tensor) {
  Json row;
  row.Set("name", tensor.name);
  row.Set("dtype", tensor.supported ? NameOf(tensor.dtype) : tensor.type_name);
  Json::Array shape;
  for (const int64_t d : tensor.shape.dims()) shape.emplace_back(d);
  row.Set("shape", std::move(shape));
  row.Set("bytes", tensor.bytes);
  row.Set("file", static_cast<int64_t>(tensor.file));
  row.Set("offset", tensor.offset);
  return row;
}

void PrintAll(const Checkpoint& checkpoint) {
  if (const GgufMetadata* metadata = checkpoint.gguf()) {
    fmt::print("GGUF version {}, {} keys\n", metadata->version(), metadata->entries().size());
    for (const GgufMetadata::Entry& entry : metadata->entries()) {
      fmt::print("  {} = {}\n", Printable(entry.key), ValueText(entry.value));
    }
  }
  int64_t bytes = 0;
  fmt::print("{} tensors\n", checkpoint.tensors().size());
  for (const StoredTensor& tensor : checkpoint.tensors()) {
    fmt::print("  {:60} {:8} {:24} {}\n", Printable(tensor.name),
               tensor.supported ? NameOf(tensor.dtype) : tensor.type_name, tensor.shape.Text(),
               BytesText(tensor.bytes));
    bytes += tensor.bytes;
  }
  fmt::print("{} in {} files\n", BytesText(bytes), checkpoint.files().size());
  for (const std::string& note : checkpoint.notes()) fmt::print("note: {}\n", note);
}

Json AllJson(const Checkpoint& checkpoint) {
  Json report;
  report.Set("schema", 1);
  report.Set("path", checkpoint.path());
  report.Set("container", NameOf(checkpoint.container()));
  if (const GgufMetadata* metadata = checkpoint.gguf()) {
    Json keys{Json::Object{}};
    for (const GgufMetadata::Entry& entry : metadata->entries())
      keys.Set(entry.key, ValueText(entry.value));
    report.Set("metadata", std::move(keys));
  }
  Json::Array tensors;
  for (const StoredTensor& tensor : checkpoint.tensors()) tensors.push_back(TensorJson(tensor));
  report.Set("tensors", std::move(tensors));
  return report;
}

// Of the finite values; without any, minimum to deviation are NaN.
struct Statistics {
  double minimum = NAN, maximum = NAN, mean = NAN, deviation = NAN;
  int64_t infinite = 0, nan = 0, zeros = 0;
};

Statistics StatisticsOf(const std::vector<float>& values) {
  Statistics s;
  int64_t finite = 0;
  double sum = 0;
  double squares = 0;
  for (const float v : values) {
    s.nan += std::isnan(v);
    s.infinite += std::isinf(v);
    s.zeros += v == 0;
    if (!std::isfinite(v)) continue;
    ++finite;
    const auto d = static_cast<double>(v);
    s.minimum = std::fmin(s.minimum, d);  // fmin ignores the NaN of the start
    s.maximum = std::fmax(s.maximum, d);
    sum += d;
    squares += d * d;
  }
  if (finite == 0) return s;
  s.mean = sum / static_cast<double>(finite);
  s.deviation = std::sqrt(std::max(0.0, squares / static_cast<double>(finite) - s.mean * s.mean));
  return s;
}

void PrintStatistics(const StoredTensor& tensor, const Statistics& s, bool as_json) {
  if (!as_json) {
    fmt::print(
        "{}: {} {}, {}\n  min {:.6g}, max {:.6g}, mean {:.6g}, std {:.6g}, zeros {}, NaN {}, "
        "infinite {}\n",
        tensor.name, NameOf(tensor.dtype), tensor.shape.Text(), BytesText(tensor.bytes), s.minimum,
        s.maximum, s.mean, s.deviation, s.zeros, s.nan, s.infinite);
    return;
  }
  const auto number = [](double value) { return std::isnan(value) ? Json() : Json(value); };
  Json row = TensorJson(tensor);
  row.Set("min", number(s.minimum));
  row.Set("max", number(s.maximum));
  row.Set("mean", number(s.mean));
  row.Set("std", number(s.deviation));
  row.Set("zeros", s.zeros);
  row.Set("nan", s.nan);
  row.Set("infinite", s.infinite);
  fmt::print("{}\n", row.Dump(2));
}

Result<const StoredTensor*> FindTensor(const Checkpoint& checkpoint, const std::string& name) {
  if (const StoredTensor* tensor = checkpoint.FindTensor(name)) return tensor;
  std::vector<std::string> names;
  for (const StoredTensor& t : checkpoint.tensors()) names.emplace_back(t.name);
  const std::vector<std::string> near = NearNames(name, names);
  return UsageError(fmt::format("no tensor '{}'{}", name,
                                near.empty() ? "" : "; did you mean " + Join(near, ", ") + "?"));
}

Status InspectTensor(const Checkpoint& checkpoint, const InspectArguments& arguments,
                     bool as_json) {
  TN_ASSIGN_OR_RETURN(const StoredTensor* tensor, FindTensor(checkpoint, arguments.tensor));
  TN_ASSIGN_OR_RETURN(const TensorView view, checkpoint.MapTensor(*tensor));
  const DecodeRowFn decode = DecoderOf(view.dtype());
  if (decode == nullptr) {
    return UsageError(fmt::format("{} is stored as {}, allowed: floats and GGUF blocks",
                                  tensor->name, NameOf(view.dtype())));
  }
  std::vector<float> values(static_cast<size_t>(view.shape().elements()));
  decode(view.data(), view.shape().elements(), values.data());
  PrintStatistics(*tensor, StatisticsOf(values), as_json);
  if (arguments.output.empty()) return {};
  const OutputTensor out = OutputTensor::Of(
      std::string(tensor->name),
      TensorView(DType::kF32, view.shape(), reinterpret_cast<std::byte*>(values.data())));
  TN_RETURN_IF_ERROR(WriteSafetensors(arguments.output, {&out, 1}));
  fmt::print(stderr, "{} as f32 in {}\n", tensor->name, arguments.output);
  return {};
}

Status Inspect(const InspectArguments& arguments) {
  TN_ASSIGN_OR_RETURN(const EngineOptions options, arguments.options.Resolve());
  TN_ASSIGN_OR_RETURN(const auto checkpoint, Checkpoint::Open(arguments.path, OpenFor::kModel));
  if (!arguments.tensor.empty()) {
    return InspectTensor(*checkpoint, arguments, options.json.value);
  }
  if (!arguments.output.empty()) return UsageError("-o needs a TENSOR");
  if (options.json.value) {
    fmt::print("{}\n", AllJson(*checkpoint).Dump(2));
  } else {
    PrintAll(*checkpoint);
  }
  return {};
}

}  // namespace

Action AddInspect(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("inspect", "Headers of a checkpoint; statistics or values of one tensor");
  auto arguments = std::make_shared<InspectArguments>(*command);
  command
      ->add_option("FILE", arguments->path,
                   "A .gguf or .safetensors file, or a Hugging Face directory")
      ->required();
  command->add_option("TENSOR", arguments->tensor, "A tensor's name as the file stores it");
  command->add_option("-o,--output", arguments->output,
                      "Write the tensor, decoded to F32, as safetensors");
  return [arguments] { return Inspect(*arguments); };
}

}  // namespace tenon::cli
