// How the buckets of a plan are cut and reduced, as rank 0 tells it to all (runtime/announcement.h).
#pragma once

#include <cstdint>

#include "core/env.h"

namespace smddp {

constexpr int32_t kAutoAlgorithm = -1;  // chosen for each bucket by its size

struct TuneSettings {
  int64_t bucket_bytes = kAutoBytes;   // kAutoBytes: as configured
  int64_t chunk_bytes = 0;             // 0: as configured
  int32_t chunks_in_flight = 0;        // 0: as the topology has it
  int32_t algorithm = kAutoAlgorithm;  // else its place in Algorithms()

  bool operator==(const TuneSettings& other) const {
    return bucket_bytes == other.bucket_bytes && chunk_bytes == other.chunk_bytes &&
           chunks_in_flight == other.chunks_in_flight && algorithm == other.algorithm;
  }
};

}  // namespace smddp
