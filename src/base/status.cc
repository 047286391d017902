#include "tenon/base/status.h"

#include <cstdio>
#include <cstdlib>

namespace tenon {

std::string_view NameOf(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return "ok";
    case StatusCode::kUsage:
      return "usage";
    case StatusCode::kRefused:
      return "refused";
    case StatusCode::kDoesNotFit:
      return "does_not_fit";
    case StatusCode::kNotFound:
      return "not_found";
    case StatusCode::kIo:
      return "io";
    case StatusCode::kUnavailable:
      return "unavailable";
    case StatusCode::kCancelled:
      return "cancelled";
    case StatusCode::kInternal:
      return "internal";
  }
  return "unknown";
}

int ExitCodeOf(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return 0;
    case StatusCode::kNotFound:
    case StatusCode::kUsage:
      return 2;
    case StatusCode::kRefused:
      return 3;
    case StatusCode::kDoesNotFit:
      return 4;
    case StatusCode::kIo:
    case StatusCode::kUnavailable:
    case StatusCode::kCancelled:
    case StatusCode::kInternal:
      return 1;
  }
  return 1;
}

Status Status::WithContext(std::string_view context) const {
  if (ok()) return *this;
  std::string prefix = std::string(context) + ": ";
  if (message_.starts_with(prefix)) return *this;
  return {code_, std::move(prefix) + message_};
}

namespace internal {
void CheckFailed(const char* file, int line, const char* expression, const char* why) {
  std::fprintf(stderr, "%s:%d: internal check failed: %s (%s)\n", file, line, expression, why);
  std::abort();
}
}  // namespace internal

}  // namespace tenon
