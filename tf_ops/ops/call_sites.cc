#include "ops/call_sites.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <set>

namespace smddp::ops {
namespace {

bool IsDigit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

// The run of digits at `at`, without leading zeros.
std::string NumberAt(const std::string& text, size_t* at) {
  const size_t begin = *at;
  while (*at < text.size() && IsDigit(text[*at])) ++*at;
  const size_t first = std::min(text.find_first_not_of('0', begin), *at);
  return text.substr(first, *at - first);
}

struct Natural {
  bool operator()(const std::string& a, const std::string& b) const { return NaturalLess(a, b); }
};

}  // namespace

bool NaturalLess(const std::string& a, const std::string& b) {
  size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (IsDigit(a[i]) && IsDigit(b[j])) {
      const std::string left = NumberAt(a, &i), right = NumberAt(b, &j);
      if (left.size() != right.size()) return left.size() < right.size();
      if (left != right) return left < right;
    } else {
      if (a[i] != b[j]) return a[i] < b[j];
      ++i, ++j;
    }
  }
  if (i < a.size() || j < b.size()) return j < b.size();
  return a < b;  // equal numbers, such as "x1" and "x01"
}

std::string PlaceOf(const std::string& node_name) {
  const size_t slash = node_name.rfind('/');
  return slash == std::string::npos ? "" : node_name.substr(0, slash);
}

std::vector<int> NumberPlaces(const std::vector<std::string>& places) {
  const std::set<std::string, Natural> different(places.begin(), places.end());
  std::vector<int> numbers;
  for (const std::string& place : places) {
    numbers.push_back(static_cast<int>(std::distance(different.begin(), different.find(place))));
  }
  return numbers;
}

}  // namespace smddp::ops
