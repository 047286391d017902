// What it costs that threads meet: a meeting inside a run, and starting an empty run.
#include "cases.h"

namespace tenon::bench {

void AddTeamCases(std::vector<CaseSpec>& cases) {
  constexpr int64_t kCount = 5000;
  cases.push_back({"team", "meeting", [](const Setup& setup) {
                     Case work{.kernel = "ThreadTeam::Meet", .unit = "meeting", .units = kCount};
                     work.pass = [team = setup.team] {
                       team->Run([&](int) {
                         for (int64_t i = 0; i < kCount; ++i) team->Meet();
                       });
                     };
                     return work;
                   }});
  cases.push_back({"team", "empty run", [](const Setup& setup) {
                     Case work{.kernel = "ThreadTeam::Run", .unit = "run", .units = kCount};
                     work.pass = [team = setup.team] {
                       for (int64_t i = 0; i < kCount; ++i) team->Run([](int) {});
                     };
                     return work;
                   }});
}

}  // namespace tenon::bench
