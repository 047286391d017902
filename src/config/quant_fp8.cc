// quant_method "fp8": DeepSeek's blocks of 128 x 128, or one scale per tensor.
#include "tenon/config/quant_readers.h"

namespace tenon {

void ReadFp8(QuantReading& reading) {
  ConfigReader& s = reading.reader;
  ExpectSetting(reading, s, "fmt", {nullptr, "e4m3", "float8_e4m3fn"});
  ExpectSetting(reading, s, "activation_scheme", {nullptr, "dynamic", "static"});
  // How scales were rounded when they were made: they are stored as they are.
  ExpectSetting(reading, s, "scale_fmt", {nullptr, "ue8m0", "float"});
  ExpectSetting(reading, s, "weight_block_size", {nullptr, Json::Array{128, 128}});
  ExpectSetting(reading, s, "dequantize", {nullptr, false});
  const bool is_static = s.String("activation_scheme", "dynamic").value == "static";
  if (s.Has("weight_block_size")) {
    reading.rules.global = Fp8Scheme(128, 128, InputFormat::kFp8PerBlock);
    if (is_static) RefuseSetting(reading, s, "activation_scheme", "\"dynamic\" with blocks");
  } else {
    reading.rules.global =
        Fp8Scheme(0, 0, is_static ? InputFormat::kFp8Static : InputFormat::kFp8PerTensor);
  }
  bool has_list = false;
  for (const char* key : {"modules_to_not_convert", "ignored_layers"}) {
    has_list |= s.Has(key);
    for (std::string& name : s.Strings(key, {}).value) {
      reading.rules.excludes.push_back({std::move(name), QuantKey::Match::kParts});
    }
  }
  // Without a list the writer leaves the head as it is; an empty list leaves nothing.
  if (!has_list) reading.rules.excludes.push_back({"lm_head", QuantKey::Match::kParts, true});
  reading.rules.kv_algorithm = ReadKvScheme(s, "kv_cache_scheme");
}

}  // namespace tenon
