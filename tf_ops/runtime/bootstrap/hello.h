// The first message of a rank: where it runs, and what must be the same everywhere.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/env/env.h"
#include "core/status.h"
#include "core/wire.h"
#include "transport/shm/tensor_memory.h"

namespace smddp {

// What must agree, with this rank's values: {"SMDDP_CHUNK_BYTES", "262144"}.
using Facts = std::vector<std::pair<std::string, std::string>>;

struct Hello {
  std::string version, host;
  Facts facts;
  int64_t shared_bytes = 0;  // of shared memory that are free on its host
  TensorMemoryAddress tensors;

  SMDDP_FIELDS(version, host, facts, shared_bytes, tensors);
  bool IsWellFormed() const { return true; }
};

// Of a rate or a time; 0 is "auto".
std::string RateText(double rate);

// Everything the engine itself needs to agree on.
Facts FactsOf(const Env& env);

// By rank. An error when one cannot be decoded, or differs from rank 0's; the same on every rank.
Result<std::vector<Hello>> DecodeHellos(const std::vector<std::string>& texts);

}  // namespace smddp
