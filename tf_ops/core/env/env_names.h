// Detects misspelt variables. Pure functions.
#pragma once

#include <string>
#include <vector>

namespace smddp {

struct UnknownName {
  std::string name;
  std::string closest;  // a known name that may have been meant; "" when none is similar
};

// Those of `names`, each beginning with SMDDP_, that are not read anywhere (core/env/env.h).
std::vector<UnknownName> UnknownNames(const std::vector<std::string>& names);

}  // namespace smddp
