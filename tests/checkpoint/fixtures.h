// Files for the tests of this folder: a directory that is removed again, and hand-made headers that
// may be as wrong as a test needs (independent of the layer's own writers).
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "support/paths.h"
#include "tenon/base/file.h"
#include "tenon/checkpoint/checkpoint.h"

namespace tenon::test {

class TempDir {
 public:
  TempDir() {
    std::string name = testing::TempDir() + "tenon_checkpoint_XXXXXX";
    TN_CHECK(mkdtemp(name.data()) != nullptr, "a temporary directory");
    path_ = name;
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }
  // Writes a file and returns its path.
  std::string Write(std::string_view name, std::string_view data) const {
    const Status status = WriteFile(*this / name, data);
    TN_CHECK(status.ok(), status.message().c_str());
    return *this / name;
  }

 private:
  std::string path_;
};

// Copies a directory of tests/.
inline void CopyData(const std::string& relative, const TempDir& to) {
  std::filesystem::copy(DataPath(relative), to.path(), std::filesystem::copy_options::recursive);
}

template <typename T>
std::string Raw(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

// 8-byte length, header, data.
inline std::string SafetensorsBytes(std::string_view header, size_t data_bytes) {
  return Raw(static_cast<uint64_t>(header.size())) + std::string(header) +
         std::string(data_bytes, '\x11');
}

// "name":{"dtype":...}: one tensor of a safetensors header. shape as JSON text.
inline std::string Entry(std::string_view name, std::string_view dtype, std::string_view shape,
                         std::string_view begin, std::string_view end) {
  std::string text = "\"";
  text.append(name).append("\":{\"dtype\":\"").append(dtype).append("\",\"shape\":");
  text.append(shape).append(",\"data_offsets\":[").append(begin).append(",").append(end);
  return text + "]}";
}

// Pieces of a GGUF file.
struct GgufText {
  static std::string String(std::string_view text) {
    return Raw(static_cast<uint64_t>(text.size())) + std::string(text);
  }
  static std::string Key(std::string_view key, GgufType type, std::string_view encoded) {
    return String(key) + Raw(static_cast<uint32_t>(type)) + std::string(encoded);
  }
  // dims: as in the file, row length first.
  static std::string Tensor(std::string_view name, std::vector<uint64_t> dims, uint32_t type,
                            uint64_t offset) {
    std::string info = String(name) + Raw(static_cast<uint32_t>(dims.size()));
    for (const uint64_t dim : dims) info += Raw(dim);
    return info + Raw(type) + Raw(offset);
  }
  static std::string Start(uint64_t tensors, uint64_t keys, uint32_t version = 3) {
    return "GGUF" + Raw(version) + Raw(tensors) + Raw(keys);
  }
  // Pads to the data section and appends its bytes.
  static std::string WithData(std::string header, size_t data_bytes, size_t alignment = 32) {
    header.resize((header.size() + alignment - 1) / alignment * alignment, '\0');
    return header + std::string(data_bytes, '\x22');
  }
};

// The refusal of a path: code kRefused and every one of the words.
inline void ExpectRefused(const std::string& path, std::initializer_list<std::string_view> words) {
  const auto opened = Checkpoint::Open(path);
  ASSERT_FALSE(opened.ok()) << path << " was opened";
  EXPECT_EQ(opened.code(), StatusCode::kRefused) << opened.message();
  for (const std::string_view word : words) {
    EXPECT_NE(opened.message().find(word), std::string::npos)
        << "no '" << word << "' in: " << opened.message();
  }
}

inline std::unique_ptr<Checkpoint> OpenOrDie(const std::string& path,
                                             OpenFor purpose = OpenFor::kModel) {
  auto opened = Checkpoint::Open(path, purpose);
  TN_CHECK(opened.ok(), opened.message().c_str());
  return *std::move(opened);
}

// FNV-1a, 64 bits: how expected bytes are written down in tests.
inline uint64_t Fnv(std::span<const std::byte> bytes) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const std::byte b : bytes) hash = (hash ^ static_cast<uint64_t>(b)) * 0x100000001b3u;
  return hash;
}
inline uint64_t Fnv(const TensorView& view) {
  return Fnv(std::span<const std::byte>(view.data(), static_cast<size_t>(view.bytes())));
}

}  // namespace tenon::test
