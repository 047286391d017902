// The team: who runs, that meetings order memory, changing numbers of members.
#include "tenon/base/thread_team.h"

#include <gtest/gtest.h>

#include <numeric>

namespace tenon {
namespace {

TEST(ThreadTeam, ExactlyTheActiveMembersRun) {
  for (const int threads : {1, 2, 3, 5}) {
    ThreadTeam team(threads);
    for (int round = 0; round < 300; ++round) {
      const int active = 1 + (round * 7 + round / 11) % threads;
      std::vector<int> runs(static_cast<size_t>(threads), 0);
      team.Run(active, [&](int thread) { ++runs[static_cast<size_t>(thread)]; });
      for (int t = 0; t < threads; ++t) ASSERT_EQ(runs[static_cast<size_t>(t)], t < active ? 1 : 0);
    }
  }
}

// Each member reads what all wrote before the meeting.
TEST(ThreadTeam, MeetingsOrderMemory) {
  constexpr int kThreads = 3;
  ThreadTeam team(kThreads);
  for (const int active : {3, 2, 3, 1, 2}) {
    std::vector<int64_t> values(kThreads, 0);
    std::vector<int64_t> sums(kThreads, 0);
    team.Run(active, [&](int thread) {
      for (int step = 1; step <= 200; ++step) {
        values[static_cast<size_t>(thread)] = step * (thread + 1);
        team.Meet();
        sums[static_cast<size_t>(thread)] += std::accumulate(values.begin(), values.end(), 0l);
        team.Meet();
      }
    });
    const int64_t expected = 200 * 201 / 2 * (active * (active + 1) / 2);
    for (int t = 0; t < active; ++t) EXPECT_EQ(sums[static_cast<size_t>(t)], expected);
  }
}

// Members that slept long, and those that were left out, come back.
TEST(ThreadTeam, SleepersWake) {
  ThreadTeam team(4);
  for (const int active : {4, 1, 4, 2, 3, 4}) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::atomic<int> runs{0};
    team.Run(active, [&](int) { runs.fetch_add(1); });
    EXPECT_EQ(runs.load(), active);
  }
}

TEST(ThreadTeam, WaitingForLateMembersIsMeasured) {
  ThreadTeam team(2);
  const uint64_t begin = Ticks();
  team.Run([](int thread) {
    if (thread == 1) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  });
  const uint64_t end = Ticks();
  EXPECT_GT(team.waited(), (end - begin) / 2);
  EXPECT_LE(team.waited(), end - begin);
}

}  // namespace
}  // namespace tenon
