// Checks for our own bugs: always on (TN_CHECK) or in debug and sanitizer builds (TN_DCHECK). Never
// for anything that comes from outside (files, options, requests): that is a Status. A failed check
// prints the expression with its place and aborts. Thread-safe.
#pragma once

namespace tenon::internal {
[[noreturn]] void CheckFailed(const char* file, int line, const char* expression, const char* why);
}  // namespace tenon::internal

#define TN_CHECK(condition, why)      \
  ((condition) ? static_cast<void>(0) \
               : ::tenon::internal::CheckFailed(__FILE__, __LINE__, #condition, why))
#ifdef NDEBUG
#define TN_DCHECK(condition, why) static_cast<void>(sizeof(condition))
#else
#define TN_DCHECK(condition, why) TN_CHECK(condition, why)
#endif
