// quant_method "mxfp4" (OCP microscaling formats): numbers of four bits, and a power of two for
// each 32 of a row.
#include "tenon/config/quant_readers.h"

namespace tenon {

void ReadMxfp4(QuantReading& reading) {
  ConfigReader& s = reading.reader;
  reading.rules.global = {.method = "mxfp4",
                          .codes = DType::kU8,
                          .block_rows = 1,
                          .block_cols = 32,
                          .scale_names = {"weight_scale"}};
  s.Ignore({"dequantize"});  // how the writer's own code is to hold them
  for (std::string& name : s.Strings("modules_to_not_convert", {}).value) {
    reading.rules.excludes.push_back({std::move(name), QuantKey::Match::kGlob});
  }
}

}  // namespace tenon
