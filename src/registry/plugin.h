// What a plugin's source includes: TN_PLUGIN, which exports its registration and the tag by which a
// program of ours knows, before any of its code runs, that both were built alike. Not for programs
// that open plugins (plugin_loader.h). A header alone: a plugin links none of our libraries.
#pragma once

#include <string>  // the standard library's own macros, which the tag reads

#include "tenon/registry/registry.h"

// Interfaces change with the minor version; CMake holds this to the project's.
#define TN_PLUGIN_VERSION "0.1"

// --- the tag: what two objects must agree on to share classes

#if defined(__x86_64__)
#define TN_TAG_MACHINE "x86-64"
#elif defined(__aarch64__)
#define TN_TAG_MACHINE "aarch64"
#else
#error "plugins: no tag for this machine"
#endif

// Compilers count further within 1xxx for details of name mangling; those show as undefined
// symbols, and clang always says 1002.
#if __GXX_ABI_VERSION >= 1002 && __GXX_ABI_VERSION < 2000
#define TN_TAG_COMPILER "itanium-1"
#else
#error "plugins: no tag for this compiler's ABI"
#endif

// The library's version is not part of it: symbols carry theirs, and the loader checks them.
#if defined(_LIBCPP_VERSION)
#define TN_TAG_LIBRARY "libc++"
#elif _GLIBCXX_USE_CXX11_ABI
#define TN_TAG_LIBRARY "libstdc++-cxx11"
#else
#define TN_TAG_LIBRARY "libstdc++-old"
#endif

// Containers of another size. (Assertions are not: they only add checks.)
#ifdef _GLIBCXX_DEBUG
#define TN_TAG_DEBUG " debug-containers"
#else
#define TN_TAG_DEBUG ""
#endif

#ifndef __has_feature
#define TN_HAS_FEATURE(name) 0
#else
#define TN_HAS_FEATURE(name) __has_feature(name)
#endif
// Both sides must mark memory, or what one does looks wrong to the other.
#if defined(__SANITIZE_ADDRESS__) || TN_HAS_FEATURE(address_sanitizer)
#define TN_TAG_SANITIZER " asan"
#elif defined(__SANITIZE_THREAD__) || TN_HAS_FEATURE(thread_sanitizer)
#define TN_TAG_SANITIZER " tsan"
#else
#define TN_TAG_SANITIZER ""
#endif

#define TN_PLUGIN_TAG                                               \
  "tenon-" TN_PLUGIN_VERSION " " TN_TAG_MACHINE " " TN_TAG_COMPILER \
  " " TN_TAG_LIBRARY TN_TAG_DEBUG TN_TAG_SANITIZER

// An ELF note: read from the file (plugin_note.h), kept by `strip` and by linkers that drop what
// nobody uses. Assembly, because a sanitizer pads variables.
#define TN_PLUGIN_NOTE(tag)                    \
  __asm__(                                     \
      ".pushsection .note.tenon,\"a\",%note\n" \
      ".balign 4\n"                            \
      ".long 6\n"                              \
      ".long 8f - 7f\n"                        \
      ".long 1\n"                              \
      ".asciz \"Tenon\"\n"                     \
      ".balign 4\n"                            \
      "7: .ascii \"" tag                       \
      "\"\n"                                   \
      "8: .balign 4\n"                         \
      ".popsection\n")

// Once in a plugin, outside namespaces: TN_PLUGIN(RegisterAurora); for `tenon::Status
// RegisterAurora(tenon::Registrar&)`.
#define TN_PLUGIN(register_function)                                    \
  TN_PLUGIN_NOTE(TN_PLUGIN_TAG);                                        \
  extern "C" [[gnu::visibility("default")]] void tenon_register_plugin( \
      ::tenon::Registrar& registrar, ::tenon::Status& status) {         \
    status = register_function(registrar);                              \
  }                                                                     \
  static_assert(true)
