// What 8-bit exchanges (rail/quantised_exchange.h) have rounded away from the sums of one bucket on this rank.
#pragma once

#include <cstdint>
#include <vector>

namespace smddp {

// Threads: the engine's.
class RoundingErrors {
 public:
  // Of chunk `chunk`, of which this rank exchanges `elements`: zeros at first, and after a change of that number.
  float* Of(int chunk, int64_t elements) {
    if (by_chunk_.size() <= static_cast<size_t>(chunk)) by_chunk_.resize(chunk + 1);
    std::vector<float>& errors = by_chunk_[chunk];
    if (errors.size() != static_cast<size_t>(elements)) errors.assign(elements, 0.0f);
    return errors.data();
  }

 private:
  std::vector<std::vector<float>> by_chunk_;
};

}  // namespace smddp
