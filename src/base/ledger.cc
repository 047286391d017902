#include "tenon/base/ledger.h"

#include <fmt/format.h>

namespace tenon {

std::string Origin::Text() const {
  if (!detail.empty()) return detail;
  switch (kind) {
    case Kind::kUser:
      return "the user";
    case Kind::kEnvironment:
      return "the environment";
    case Kind::kConfigFile:
      return "the config file";
    case Kind::kModelDefault:
      return "model default";
    case Kind::kCheckpoint:
      return "the checkpoint";
    case Kind::kEngineDefault:
      return "engine default";
    case Kind::kDerived:
      return "derived";
  }
  return "unknown";
}

std::string_view NameOf(DecisionKind kind) {
  switch (kind) {
    case DecisionKind::kResolved:
      return "resolved";
    case DecisionKind::kAdjusted:
      return "adjusted";
    case DecisionKind::kDowngraded:
      return "downgraded";
  }
  return "unknown";
}

DecisionKind KindOfChange(const Origin& origin) {
  switch (origin.kind) {
    case Origin::Kind::kUser:
    case Origin::Kind::kEnvironment:
    case Origin::Kind::kConfigFile:
    case Origin::Kind::kModelDefault:
    case Origin::Kind::kCheckpoint:
      return DecisionKind::kDowngraded;
    case Origin::Kind::kEngineDefault:
    case Origin::Kind::kDerived:
      return DecisionKind::kAdjusted;
  }
  return DecisionKind::kAdjusted;
}

Status Ledger::Record(Decision decision) {
  TN_CHECK(!frozen_, "the load ledger is frozen at Plan");
  Status status;
  if (decision.kind == DecisionKind::kDowngraded && !Allows(decision.field)) {
    status = UsageError(fmt::format(
        "refused: {} = {} would become {} ({}); fix: change it, or allow it with --allow-downgrade "
        "{}",
        decision.field, decision.requested, decision.resolved, decision.why, decision.field));
  }
  decisions_.push_back(std::move(decision));
  return status;
}

void Ledger::Truncate(size_t count) {
  TN_CHECK(!frozen_, "the load ledger is frozen at Plan");
  if (count < decisions_.size()) {
    decisions_.erase(decisions_.begin() + static_cast<std::ptrdiff_t>(count), decisions_.end());
  }
}

Json Ledger::ToJson() const {
  Json::Array rows;
  for (const Decision& d : decisions_) {
    Json row;
    row.Set("field", d.field);
    if (d.layer) row.Set("layer", *d.layer);
    row.Set("requested", d.requested);
    row.Set("resolved", d.resolved);
    row.Set("kind", NameOf(d.kind));
    row.Set("by", d.by);
    row.Set("why", d.why);
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace tenon
