// What this machine can do at most right now: reading memory and multiplying in registers, with all
// threads. Yardsticks of `tenon bench`; models use none of it. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tenon/base/thread_team.h"

namespace tenon {

struct KernelTable;

// Seconds in which the team reads data [bytes], each thread its part.
double SecondsToRead(const KernelTable& kernels, ThreadTeam& team, const std::byte* data,
                     int64_t bytes);
// Operations per second of the table's widest multiply-adds, all threads together, over about a
// millisecond.
double OperationsPerSecond(const KernelTable& kernels, ThreadTeam& team);

}  // namespace tenon
