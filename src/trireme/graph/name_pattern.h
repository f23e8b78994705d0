// NamePattern: a POSIX extended regular expression that selects parameters by name.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trireme/base/result.h"

namespace trireme {

class NamePattern {
 public:
  // Error: a malformed expression, with what is wrong; one of more than 1,000 characters.
  static Result<NamePattern> make(const std::string& expression);
  // True when the expression is found anywhere in the name. A tied parameter is selected by any of
  // its names.
  [[nodiscard]] bool matches(const std::string& name) const;
  [[nodiscard]] bool matches_any(const std::vector<std::string>& names) const;

 private:
  struct Compiled;
  std::shared_ptr<const Compiled> compiled_;
};

}  // namespace trireme
