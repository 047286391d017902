// Device: where a tensor's bytes live. `meta` has shapes and no bytes; CUDA joins here later. Not a
// queue yet: the CPU executes a step tape (ops/tape.h). A value; thread-safe.
#pragma once

#include <cstdint>
#include <string_view>

namespace tenon {

enum class Device : uint8_t { kCpu, kMeta };

constexpr std::string_view NameOf(Device device) { return device == Device::kCpu ? "cpu" : "meta"; }

}  // namespace tenon
