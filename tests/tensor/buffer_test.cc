#include "tenon/tensor/buffer.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tenon {
namespace {

// Every way to get memory: as large as asked for, aligned, and ours to write to the last byte.
void ExpectUsable(const Buffer& buffer, int64_t bytes, bool zeroed) {
  ASSERT_EQ(buffer.size(), bytes);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % Buffer::kAlignment, 0u);
  const auto all = buffer.bytes();
  if (zeroed) {
    EXPECT_TRUE(std::all_of(all.begin(), all.end(), [](std::byte b) { return b == std::byte{}; }));
  }
  std::fill(all.begin(), all.end(), std::byte{7});
}

TEST(Buffer, EverySize) {
  for (const int64_t bytes : {0, 1, 63, 4096, 1 << 20, (2 << 20) + 1, 5 << 20}) {
    SCOPED_TRACE(bytes);
    ExpectUsable(*Buffer::Allocate(bytes, "test"), bytes, false);
    ExpectUsable(*Buffer::AllocateZeroed(bytes, "test"), bytes, true);
    const Buffer streams = *Buffer::AllocateForStreams(bytes, "test");
    ExpectUsable(streams, bytes, true);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(streams.data()) % (2 << 20), 0u)
        << "a large page's start";
  }
}

TEST(Buffer, WhatTheSystemRefuses) {
  for (const auto allocate :
       {Buffer::Allocate, Buffer::AllocateZeroed, Buffer::AllocateForStreams}) {
    const Result<Buffer> buffer = allocate(int64_t{1} << 60, "the test's wish");
    ASSERT_FALSE(buffer.ok());
    EXPECT_EQ(buffer.code(), StatusCode::kDoesNotFit);
    EXPECT_NE(buffer.message().find("the test's wish"), std::string::npos);
  }
}

}  // namespace
}  // namespace tenon
