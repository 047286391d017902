// The choice of a team's size against a model of a machine: what a run takes with so many members,
// with and without a busy neighbour.
#include "tenon/base/team_size.h"

#include <gtest/gtest.h>

namespace tenon {
namespace {

struct Machine {
  int threads = 2;
  bool busy = false;  // one core is half somebody else's
  // Work of 1000 for one thread. Members meet often: the slowest one's pace counts.
  uint64_t Duration(int size) const {
    const bool hit = busy && size == threads;
    return static_cast<uint64_t>((hit ? 2600 : 1000) / size);
  }
  uint64_t Waited(int size) const { return busy && size == threads ? Duration(size) / 2 : 0; }
};

// Average duration of `runs` runs.
double Average(TeamSize& team, const Machine& machine, int runs) {
  double sum = 0;
  for (int i = 0; i < runs; ++i) {
    sum += static_cast<double>(machine.Duration(team.size()));
    team.Report(machine.Duration(team.size()), machine.Waited(team.size()));
  }
  return sum / runs;
}

TEST(TeamSize, QuietMachinesUseEveryThread) {
  for (const int threads : {1, 2, 3, 16}) {
    TeamSize team(threads);
    for (int i = 0; i < 1000; ++i) {
      ASSERT_EQ(team.size(), threads);
      team.Report(100, 10);
    }
  }
}

// Waiting alone does not shrink a team that is faster as it is.
TEST(TeamSize, ImbalanceIsNoNeighbour) {
  TeamSize team(2);
  int runs_alone = 0;
  for (int i = 0; i < 10000; ++i) {
    runs_alone += team.size() == 1 ? 1 : 0;
    team.Report(team.size() == 1 ? 1000 : 600, 200);
  }
  EXPECT_EQ(team.size(), 2);
  EXPECT_LT(runs_alone, 200);
}

TEST(TeamSize, ShrinksBesideABusyNeighbourAndRecovers) {
  for (const int threads : {2, 3}) {
    Machine machine{threads, true};
    TeamSize team(threads);
    Average(team, machine, 40);
    const auto alone = static_cast<double>(machine.Duration(threads - 1));
    EXPECT_LT(Average(team, machine, 4000), 1.05 * alone) << threads;
    machine.busy = false;
    Average(team, machine, 4000);  // until it is tried again
    EXPECT_EQ(team.size(), threads);
    EXPECT_LT(Average(team, machine, 4000), 1.05 * static_cast<double>(machine.Duration(threads)));
  }
}

// One long run among many is an accident.
TEST(TeamSize, OutliersDoNotDecide) {
  TeamSize team(2);
  for (int i = 0; i < 8000; ++i) {
    const bool outlier = i % 8 == 3;
    const uint64_t duration = (team.size() == 2 ? 500 : 1000) * (outlier ? 50u : 1u);
    team.Report(duration, outlier ? duration : 0);
  }
  EXPECT_EQ(team.size(), 2);
}

}  // namespace
}  // namespace tenon
