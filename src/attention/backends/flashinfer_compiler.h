// Compiles generated kernels with the system's compiler into a cache of shared objects, and loads
// them. Knows nothing of what the sources compute. An entry is loaded only when the text embedded
// in it names what is asked for: interface, instruction set, source, and the compiler if there is
// one. Thread-safe; what is loaded stays for the process.
#pragma once

#include <string>

#include "tenon/base/machine_profile.h"
#include "tenon/base/status.h"

namespace tenon::backends {

class KernelCompiler {
 public:
  // The compiler that TENON_JIT_CXX names, or else the first of c++, g++, clang++ on PATH; the
  // cache in XDG_CACHE_HOME or ~/.cache.
  static KernelCompiler Find(Isa isa);
  // `compiler`: a program's path, or empty for none.
  KernelCompiler(Isa isa, std::string compiler, std::string cache_dir);

  // A kernel, apart from what compiles it for which machine.
  struct Unit {
    std::string name;  // begins the entry's file name
    std::string abi;   // of its interface
    std::string source;
    std::string function;  // its symbol
  };

  bool usable() const { return !version_.empty(); }
  // "/usr/bin/c++ (Debian clang version 14.0.6)", or why there is none.
  const std::string& description() const { return description_; }
  const std::string& cache_dir() const { return cache_dir_; }
  std::string PathOf(const Unit& unit) const;
  // Does the cache hold it?
  bool Has(const Unit& unit) const;
  // The function, compiled now if the cache does not hold it.
  Result<void*> Load(const Unit& unit) const;

 private:
  // What an entry says of itself; without a compiler as far as that goes.
  std::string KeyOf(const Unit& unit) const;
  Status Compile(const Unit& unit, const std::string& target) const;

  Isa isa_;
  std::string compiler_;
  std::string version_;
  std::string description_;
  std::string cache_dir_;
};

}  // namespace tenon::backends
