#include "core/env/env_names.h"

#include <algorithm>

#include "core/env/env.h"

namespace smddp {
namespace {

// The edit distance: how many letters must be added, left out or changed to turn `a` into `b`.
size_t Distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t changed = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, changed});
    }
  }
  return row[b.size()];
}

bool IsKnown(const std::string& name) {
  const auto& variables = EnvVariables();
  if (std::any_of(variables.begin(), variables.end(), [&](const EnvVariable& one) { return one.name == name; })) {
    return true;
  }
  return std::any_of(OtherNames().begin(), OtherNames().end(), [&](const std::string& other) {
    return other == name || (other.back() == '_' && name.rfind(other, 0) == 0);
  });
}

constexpr size_t kPrefix = 6;  // SMDDP_

// Allows one wrong letter plus a quarter of all.
std::string ClosestTo(const std::string& name) {
  std::string closest;
  size_t least = 2 + (name.size() - kPrefix) / 4;
  for (const EnvVariable& variable : EnvVariables()) {
    const size_t distance = Distance(name, variable.name);
    if (distance >= least) continue;
    least = distance;
    closest = variable.name;
  }
  return closest;
}

}  // namespace

std::vector<UnknownName> UnknownNames(const std::vector<std::string>& names) {
  std::vector<UnknownName> unknown;
  for (const std::string& name : names) {
    if (!IsKnown(name)) unknown.push_back({name, ClosestTo(name)});
  }
  return unknown;
}

}  // namespace smddp
