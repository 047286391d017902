// StoredTensor: what a file's header says about one tensor. Not its bytes (Checkpoint::MapTensor)
// and not the name a model uses (tensor_index.h). A value whose views belong to the Checkpoint;
// thread-compatible.
#pragma once

#include <cstdint>
#include <string_view>

#include "tenon/base/status.h"
#include "tenon/numeric/dtype.h"
#include "tenon/tensor/shape.h"

namespace tenon {

struct StoredTensor {
  std::string_view name;
  std::string_view type_name;  // as the container spells it: "BF16", "IQ4_XS"
  int type_number = -1;        // ggml's type number; -1 in safetensors
  bool supported = false;      // there is a DType for it; otherwise `dtype` means nothing
  DType dtype = DType::kU8;
  Shape shape;         // outermost dimension first, GGUF too
  int file = 0;        // index of Checkpoint::files()
  int64_t offset = 0;  // of the first byte in that file; any alignment
  int64_t bytes = 0;
};

// OK, or kRefused: "tensor type IQ4_XS (23) is not supported yet; supported: ...".
Status CheckTypeSupported(const StoredTensor& tensor);

}  // namespace tenon
