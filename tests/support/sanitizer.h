// TN_UNDER_SANITIZER: defined when this test runs under AddressSanitizer or ThreadSanitizer, which
// allocate and call the system on their own. clang says so by a feature, g++ by a macro.
#pragma once

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TN_UNDER_SANITIZER
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TN_UNDER_SANITIZER
#endif
