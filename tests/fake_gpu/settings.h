// What the fake GPU's own variables say, what it counts, and how it gives up.
//
//   FAKE_GPU_DEVICES=n     devices of every process: 1
//   FAKE_GPU_SHARED=0      processes have GPUs of their own: the uuids and bus ids differ. slices: the uuids differ, as
//                          those of slices of one GPU (MIG). 1: device i is the same one everywhere
//   FAKE_GPU_MEMORY=bytes  of each device, for each process: 1 GiB
//   FAKE_GPU_FAIL=kind:n   the n-th call of this kind fails (kinds: see Call below); more of them with commas between.
//                          work:n is the n-th piece of work on any stream: all later calls to its device fail
//   FAKE_GPU_DELAY_US=n    every piece of work comes up to n microseconds late, at random; FAKE_GPU_SEED chooses how
//   FAKE_GPU_PAGEABLE      wait: copies from and to pageable memory are done when the call returns, as with CUDA.
//                          later: they are done in the order of the stream, and read and write when they run
//   FAKE_GPU_SYNC=1        allocating and freeing wait for all work of the device, as CUDA's functions may: of pinned
//                          memory and every free always, the allocation of memory at random
//   FAKE_GPU_QUEUES=n      streams are run by n threads of their device, as a GPU's hardware has few queues: work of a
//                          stream waits for what was put before it on those that have the same. 0: each has its own
//
// Threads: any.
#pragma once

#include <cstdint>
#include <string>

#include "core/status.h"

namespace smddp::fake {

struct Settings {
  int devices = 1;
  bool shared = true, slices = false;
  size_t memory = size_t{1} << 30;
  int64_t delay_us = 0;
  uint64_t seed = 1;
  bool pageable_waits = true;
  bool sync = false;
  int queues = 0;
};
Settings Read();
// The variables are looked at again, and the calls of FAKE_GPU_FAIL counted from here.
void Reload();

// Counts a call. An error if FAKE_GPU_FAIL says that this one fails. Kinds: count open device_of allocate pin stream
// event record wait done copy zero pack unpack work groups.
Status Call(const std::string& kind, bool memory_lacks = false);
// How often, since the process began; -1: no such kind so far.
int64_t Calls(const std::string& kind);

// Things that are alive, and what else tests want to know. Any name.
void Add(const std::string& what, int64_t amount);
int64_t CountOf(const std::string& what);

// The caller broke the contract: a sentence to stderr, and the end.
[[noreturn]] void Fatal(const std::string& sentence);

}  // namespace smddp::fake
