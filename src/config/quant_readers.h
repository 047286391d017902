// What the readers of the producers' settings share. Each producer has a file; this is no interface
// of the layer. Not thread-safe.
#pragma once

#include <initializer_list>
#include <string>

#include "tenon/config/config_reader.h"
#include "tenon/config/quant_rules.h"

namespace tenon {

struct QuantReading {
  const QuantConfig& config;
  ConfigReader reader;  // of the settings; collects the refusals
  QuantRules rules;
};

void ReadFp8(QuantReading& reading);
void ReadCompressedTensors(QuantReading& reading);
void ReadModelOpt(QuantReading& reading);
void ReadMxfp4(QuantReading& reading);

// Leaves the refusal of what `at` says under the key.
void RefuseSetting(QuantReading& reading, ConfigReader& at, const std::string& key,
                   std::string_view allowed);
// Reads the key; refuses it unless its value is one of the list, in which null stands for absent
// too.
void ExpectSetting(QuantReading& reading, ConfigReader& at, const std::string& key,
                   std::initializer_list<Json> allowed);
// The cache's format out of {"num_bits": 8, "type": "float"}; absent: none.
std::string ReadKvScheme(ConfigReader& at, const std::string& key);

// Schemes that several producers write.
QuantScheme Fp8Scheme(int64_t block_rows, int64_t block_cols, InputFormat input);
QuantScheme Int8Scheme(int64_t block_rows, InputFormat input);

}  // namespace tenon
