// What fuzz targets share: several files in one input, a folder for readers that take paths,
// reading to the last byte, and what holds of every error. Not a target. One thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/base/status.h"
#include "tenon/checkpoint/checkpoint.h"

namespace tenon::fuzz {

// Inputs of several files: they stand one after the other, a line of five equals signs between
// them.
std::vector<std::string_view> Parts(std::string_view bytes);

// A folder in memory where the system has one (/dev/shm); removed at the end of the process.
class ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::string& path() const { return path_; }
  // Replaces the file and returns its path.
  std::string Write(std::string_view name, std::string_view bytes) const;
  void Remove(std::string_view name) const;

 private:
  std::string path_;
};

// Reads every byte.
void Read(std::span<const std::byte> bytes);
void Read(std::string_view text);

// Every error says something, in no more than a few thousand bytes, and is no bug of ours.
void CheckError(const Status& status);

// Every tensor's name, shape and bytes, its first and last row decoded; every metadata value in
// every form; the index with names as families have them, and what it loads.
void Walk(const Checkpoint& checkpoint);

}  // namespace tenon::fuzz
