#include "tenon/config/quant_config.h"

#include <gtest/gtest.h>

#include "config/test_json.h"

namespace tenon {
namespace {

using test::Contains;
using test::J;

TEST(QuantConfig, AbsentAndNullAreNone) {
  for (const char* text : {"{}", R"({"quantization_config": null})", R"({"text_config": {}})"}) {
    ConfigReader reader(J(text));
    const QuantConfig quant = ReadQuantConfig(reader, nullptr);
    EXPECT_EQ(quant.method.value, QuantMethod::kNone);
    EXPECT_TRUE(quant.Unsupported().ok());
    EXPECT_TRUE(quant.settings.is_null());
    EXPECT_TRUE(reader.ok());
  }
}

// The forms that real producers write.
TEST(QuantConfig, MethodsByNameAndByForm) {
  const std::vector<std::pair<const char*, QuantMethod>> cases = {
      {R"({"quantization_config": {"quant_method": "fp8", "fmt": "e4m3"}})", QuantMethod::kFp8},
      {R"({"quantization_config": {"quant_method": "awq", "bits": 4}})", QuantMethod::kAwq},
      {R"({"quantization_config": {"quant_method": "gptq"}})", QuantMethod::kGptq},
      {R"({"quantization_config": {"quant_method": "mxfp4"}})", QuantMethod::kMxfp4},
      {R"({"quantization_config": {"load_in_4bit": true}})", QuantMethod::kBitsAndBytes},
      {R"({"compression_config": {"config_groups": {}}})", QuantMethod::kCompressedTensors},
      {R"({"quantization_config": {"quant_algo": "NVFP4", "quant_method": "modelopt"}})",
       QuantMethod::kModelOpt},
      {R"({"text_config": {"quantization_config": {"quant_method": "fp8"}}})", QuantMethod::kFp8},
  };
  for (const auto& [text, method] : cases) {
    ConfigReader reader(J(text));
    EXPECT_EQ(ReadQuantConfig(reader, nullptr).method.value, method) << text;
    EXPECT_TRUE(reader.ok()) << reader.status().message();
  }
  ConfigReader reader(J(R"({"quantization_config": {"quant_method": "fp8"}})"));
  const Json file = J(R"({"producer": {"name": "modelopt", "version": "0.33"},
                          "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}})");
  const QuantConfig quant = ReadQuantConfig(reader, &file);  // its own file counts first
  EXPECT_EQ(quant.method.value, QuantMethod::kModelOpt);
  EXPECT_EQ(quant.method.origin.Text(), "hf_quant_config.json");
  EXPECT_EQ(quant.Text(), "modelopt, quant_algo FP8, kv_cache_quant_algo FP8");
  EXPECT_EQ(quant.settings, file);
}

TEST(QuantConfig, TheRefusalSaysWhatItIsAndWhatCanBe) {
  ConfigReader reader(J(R"({"quantization_config": {"quant_method": "awq", "bits": 4,
      "group_size": 128, "zero_point": true, "version": "gemm"}})"));
  const Status status = ReadQuantConfig(reader, nullptr).Unsupported();
  EXPECT_EQ(status.code(), StatusCode::kRefused);
  EXPECT_EQ(status.message(),
            "quantisation method = awq (awq, bits 4, group_size 128, version gemm, zero_point "
            "true), supports none, fp8, compressed-tensors, modelopt, mxfp4 and the block formats "
            "of GGUF "
            "files; set by config.json: quantization_config; fix: use the checkpoint as it was "
            "before quantisation, or a GGUF file of it");
}

TEST(QuantConfig, HostileSettingsAreOneError) {
  for (const auto& [text, message] : std::vector<std::pair<const char*, const char*>>{
           {R"({"quantization_config": {"quant_method": "magic"}})",
            "quant_method = \"magic\", known are none, fp8"},
           {R"({"quantization_config": {"quant_method": "none"}})",
            "quant_method = \"none\", known are"},
           {R"({"quantization_config": {"quant_method": 8}})",
            "quant_method = 8, must be a string"},
           {R"({"quantization_config": {}})", "it names no quant_method"},
           {R"({"quantization_config": [1]})", "must be an object or null"}}) {
    ConfigReader reader(J(text));
    ReadQuantConfig(reader, nullptr);
    EXPECT_TRUE(Contains(reader.status().message(), message)) << reader.status().message();
    EXPECT_FALSE(Contains(reader.status().message(), "problems"));
  }
  for (const char* text : {"[]", R"({"producer": 3})", "null", "{}"}) {
    ConfigReader reader(J("{}"));
    const Json file = J(text);
    ReadQuantConfig(reader, &file);
    EXPECT_TRUE(Contains(reader.status().message(), "hf_quant_config.json"))
        << reader.status().message();
  }
}

// Methods that others read are known by the names they are given under, before ours.
TEST(QuantConfigExternals, CountBeforeOurs) {
  const std::vector<std::string> externals = {"sym4", "awq"};
  for (const std::string& name : externals) {
    Json config;
    Json settings;
    settings.Set("quant_method", name);
    config.Set("quantization_config", settings);
    ConfigReader reader(config);
    const QuantConfig quant = ReadQuantConfig(reader, nullptr, externals);
    ASSERT_TRUE(reader.ok()) << reader.status().message();
    EXPECT_EQ(quant.method.value, QuantMethod::kExternal);
    EXPECT_EQ(quant.external, name);
    EXPECT_EQ(quant.Text(), name);
  }
  Json config;
  Json settings;
  settings.Set("quant_method", "sym5");
  config.Set("quantization_config", settings);
  ConfigReader reader(config);
  ReadQuantConfig(reader, nullptr, externals);
  ASSERT_FALSE(reader.ok());
  EXPECT_NE(reader.status().message().find("bitsandbytes, sym4, awq"), std::string::npos)
      << reader.status().message();
}

}  // namespace
}  // namespace tenon
