// One function per file of this folder; module.cc calls them all.
#pragma once

#include <nanobind/nanobind.h>

namespace smddp {

void BindCollectives(nanobind::module_& m);    // of NumPy arrays, in the process's session
void BindFacts(nanobind::module_& m);          // the event log, the lists of variables and algorithms
void BindCompute(nanobind::module_& m);        // the kernels
void BindTopology(nanobind::module_& m);       // who sits where, and slices
void BindRail(nanobind::module_& m);           // the algorithms between nodes, and how one is chosen
void BindCluster(nanobind::module_& m);        // ranks as threads
void BindSteps(nanobind::module_& m);          // training steps of such ranks
void BindRanks(nanobind::module_& m);          // such ranks, each driven by a Python thread
void BindDevice(nanobind::module_& m);         // GPUs
void BindDeviceKernels(nanobind::module_& m);  // one of them and its kernels
void BindDeviceTasks(nanobind::module_& m);    // their buckets, ranks as threads without sessions
void BindDeviceCluster(nanobind::module_& m);  // ranks as threads, with tensors on GPUs

}  // namespace smddp
