// One function per file of this folder; module.cc calls them all.
#pragma once

#include <nanobind/nanobind.h>

#include <stdexcept>

#include "core/status.h"

namespace smddp {

void BindControl(nanobind::module_& m);      // init, rank, size, plans, environment
void BindCollectives(nanobind::module_& m);  // allreduce, broadcast, allgather, barrier of NumPy arrays
void BindCompute(nanobind::module_& m);      // test access to the kernels
void BindTopology(nanobind::module_& m);     // test access to the pure functions
void BindHeartbeat(nanobind::module_& m);    // test access to the watch over the other ranks
void BindPlan(nanobind::module_& m);
void BindRail(nanobind::module_& m);           // the algorithms between nodes, and how one is chosen
void BindCluster(nanobind::module_& m);        // ranks as threads
void BindSteps(nanobind::module_& m);          // training steps of such ranks
void BindRanks(nanobind::module_& m);          // such ranks, each driven by a Python thread
void BindDevice(nanobind::module_& m);         // GPUs
void BindDeviceKernels(nanobind::module_& m);  // test access to one and its kernels
void BindDeviceCards(nanobind::module_& m);    // which way gradients on GPUs take
void BindDeviceTasks(nanobind::module_& m);    // their buckets, ranks as threads without sessions
void BindDeviceCluster(nanobind::module_& m);  // ranks as threads, with tensors on GPUs

// Becomes smddp_tf._core.EngineError, a RuntimeError.
class EngineError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// This boundary speaks exceptions: ValueError for what the caller passed, EngineError for the rest.
inline void ThrowIfError(const Status& status) {
  if (status.ok()) return;
  if (status.code() == Code::kInvalidArgument) throw nanobind::value_error(status.message().c_str());
  throw EngineError(status.message());
}

template <class T>
T ValueOrThrow(Result<T> result) {
  ThrowIfError(result.status());
  return std::move(*result);
}

}  // namespace smddp
