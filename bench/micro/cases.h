// The cases there are, by group; README.md says what each group is for. Pure functions.
#pragma once

#include <vector>

#include "harness.h"

namespace tenon::bench {

// gemv, narrow, gemm: products with weights in several formats.
void AddMatmulCases(std::vector<CaseSpec>& cases);
// decode, prefill: attention over cached rows.
void AddAttentionCases(std::vector<CaseSpec>& cases);
// kv_pages: one head's keys out of pages of either layout.
void AddKvLayoutCases(std::vector<CaseSpec>& cases);
// team: meetings and runs of the thread team.
void AddTeamCases(std::vector<CaseSpec>& cases);

}  // namespace tenon::bench
