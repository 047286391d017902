// MetaError: a constructor has read the numbers of a weight, which has none yet. The one exception
// of this code base: a constructor has no other way to stop. Caught where models are built
// (plan/build_model.cc), nowhere else. Not for errors of users' files.
#pragma once

#include <stdexcept>
#include <string>

namespace tenon {

class MetaError : public std::logic_error {
 public:
  // parameter: its path.
  explicit MetaError(const std::string& parameter)
      : std::logic_error("a constructor computed with weight " + parameter),
        parameter_(parameter) {}
  const std::string& parameter() const { return parameter_; }

 private:
  std::string parameter_;
};

}  // namespace tenon
