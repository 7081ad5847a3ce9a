// What the tests in C++ have in common: doctest, texts of values for its messages, and random cases.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/status.h"

namespace doctest {

template <class T>
struct StringMaker<std::vector<T>> {
  static String convert(const std::vector<T>& values) {
    String text = "{";
    for (size_t i = 0; i < values.size(); ++i) {
      const T value = values[i];  // of vector<bool> a reference is no value
      text += (i == 0 ? String("") : String(", ")) + StringMaker<T>::convert(value);
    }
    return text + "}";
  }
};

template <class A, class B>
struct StringMaker<std::pair<A, B>> {
  static String convert(const std::pair<A, B>& both) {
    return String("(") + StringMaker<A>::convert(both.first) + ", " + StringMaker<B>::convert(both.second) + ")";
  }
};

template <class T>
struct StringMaker<std::optional<T>> {
  static String convert(const std::optional<T>& value) { return value ? StringMaker<T>::convert(*value) : "none"; }
};

}  // namespace doctest

namespace smddp {

// Does `text` hold, or begin with, these words?
inline bool Has(const std::string& text, const std::string& words) { return text.find(words) != std::string::npos; }
inline bool Begins(const std::string& text, const std::string& words) { return text.rfind(words, 0) == 0; }

// The value; a test that gets none ends here and shows why.
template <class T>
T Value(Result<T> result) {
  REQUIRE_MESSAGE(result.ok(), result.status().ToString());
  return std::move(*result);
}

// Draws of one random case. A failure shows the seed; the case is the same in every run.
class Chance {
 public:
  explicit Chance(uint32_t seed) : random_(seed) {}

  int64_t Below(int64_t end) { return From(0, end - 1); }
  int64_t From(int64_t first, int64_t last) { return std::uniform_int_distribution<int64_t>(first, last)(random_); }
  template <class T>
  const T& Of(const std::vector<T>& values) {
    return values[static_cast<size_t>(Below(static_cast<int64_t>(values.size())))];
  }
  template <class T>
  void Shuffle(std::vector<T>* values) {
    for (size_t i = values->size(); i > 1; --i) std::swap((*values)[i - 1], (*values)[Below(static_cast<int64_t>(i))]);
  }

 private:
  std::mt19937 random_;
};

// Runs `body(chance)` for so many seeds.
template <class Body>
void ForSeeds(int count, Body&& body) {
  for (int seed = 0; seed < count; ++seed) {
    CAPTURE(seed);
    Chance chance(static_cast<uint32_t>(seed));
    body(chance);
  }
}

}  // namespace smddp
