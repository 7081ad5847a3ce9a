// Variables that somebody has misspelt. Pure functions.
#pragma once

#include <string>
#include <vector>

namespace smddp {

struct UnknownName {
  std::string name;
  std::string closest;  // a name that is known and may have been meant; "" when none is near
};

// Those of `names`, each beginning with SMDDP_, that nobody reads (core/env/env.h).
std::vector<UnknownName> UnknownNames(const std::vector<std::string>& names);

}  // namespace smddp
