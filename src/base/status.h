// Status and Result<T>: how every function reports what can go wrong outside this program (files,
// options, memory limits, requests). Not for our own bugs (check.h). Values; thread-compatible. A
// message reads outside-in: "loading model.norm.weight: shape [96], config says [80]". Callers add
// context with WithContext or the macros below.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "tenon/base/check.h"

namespace tenon {

// Each kind maps to one exit code of the command line (see ExitCodeOf) and one HTTP status of the
// server.
enum class StatusCode {
  kOk,
  kUsage,        // options or a request that cannot be: exit 2
  kRefused,      // this model or file is not served, and why: exit 3
  kDoesNotFit,   // memory: exit 4
  kNotFound,     // a named thing does not exist; named by the user, so exit 2
  kIo,           // the system refused to read or write: exit 1
  kUnavailable,  // something optional is absent here (compiler, ISA): exit 1
  kCancelled,    // exit 1
  kInternal,     // exit 1
};
std::string_view NameOf(StatusCode code);
int ExitCodeOf(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {
    TN_CHECK(code != StatusCode::kOk, "an error needs a code other than kOk");
  }
  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

  // "context: message"; no effect on an OK status, or when the message begins so already.
  Status WithContext(std::string_view context) const;

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

inline Status UsageError(std::string message) { return {StatusCode::kUsage, std::move(message)}; }
inline Status Refused(std::string message) { return {StatusCode::kRefused, std::move(message)}; }
inline Status DoesNotFit(std::string message) {
  return {StatusCode::kDoesNotFit, std::move(message)};
}
inline Status NotFound(std::string message) { return {StatusCode::kNotFound, std::move(message)}; }
inline Status IoError(std::string message) { return {StatusCode::kIo, std::move(message)}; }
inline Status Unavailable(std::string message) {
  return {StatusCode::kUnavailable, std::move(message)};
}
inline Status InternalError(std::string message) {
  return {StatusCode::kInternal, std::move(message)};
}

// A value or the error that kept it from existing.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}  // NOLINT(google-explicit-constructor): return x;
  Result(Status status) : status_(std::move(status)) {  // NOLINT(google-explicit-constructor)
    TN_CHECK(!status_.ok(), "a Result without a value needs an error");
  }
  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  StatusCode code() const { return status_.code(); }
  const std::string& message() const { return status_.message(); }

  const T& value() const& {
    TN_CHECK(ok(), status_.message().c_str());
    return *value_;
  }
  T& value() & {
    TN_CHECK(ok(), status_.message().c_str());
    return *value_;
  }
  T&& value() && {
    TN_CHECK(ok(), status_.message().c_str());
    return *std::move(value_);
  }
  const T& operator*() const& { return value(); }
  T& operator*() & { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  const T* operator->() const { return &value(); }
  T* operator->() { return &value(); }

  Result WithContext(std::string_view context) && {
    return ok() ? std::move(*this) : Result(status_.WithContext(context));
  }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace tenon

#define TN_CONCAT_INNER(a, b) a##b
#define TN_CONCAT(a, b) TN_CONCAT_INNER(a, b)

// TN_RETURN_IF_ERROR(expr [, context]): returns the error, with context when given.
#define TN_RETURN_IF_ERROR(expr, ...)                                            \
  do {                                                                           \
    ::tenon::Status tn_status = (expr);                                          \
    if (!tn_status.ok()) return tn_status __VA_OPT__(.WithContext(__VA_ARGS__)); \
  } while (false)

// TN_ASSIGN_OR_RETURN(auto x, expr [, context]): binds the value or returns the error.
#define TN_ASSIGN_OR_RETURN(lhs, expr, ...) \
  TN_ASSIGN_OR_RETURN_INNER(TN_CONCAT(tn_result_, __LINE__), lhs, expr, __VA_ARGS__)
#define TN_ASSIGN_OR_RETURN_INNER(result, lhs, expr, ...)                         \
  auto result = (expr);                                                           \
  if (!result.ok()) return result.status() __VA_OPT__(.WithContext(__VA_ARGS__)); \
  lhs = *std::move(result)
