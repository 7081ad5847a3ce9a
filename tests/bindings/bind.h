// One function per file of this folder; module.cc calls them all.
#pragma once

#include <nanobind/nanobind.h>

namespace smddp {

void BindCollectives(nanobind::module_& m);    // of NumPy arrays, in the process's session
void BindFacts(nanobind::module_& m);          // the event log, the lists of variables and algorithms
void BindCompute(nanobind::module_& m);        // the kernels
void BindTopology(nanobind::module_& m);       // pure functions: who sits where, shards, tags
void BindHeartbeat(nanobind::module_& m);      // the watch over the other ranks
void BindPlan(nanobind::module_& m);           // pure functions: buckets, the order of tasks
void BindRail(nanobind::module_& m);           // the algorithms between nodes, and how one is chosen
void BindCluster(nanobind::module_& m);        // ranks as threads
void BindNamed(nanobind::module_& m);          // named allreduces: which are reduced together
void BindSteps(nanobind::module_& m);          // training steps of such ranks
void BindArena(nanobind::module_& m);          // the memory of shared tensors
void BindRanks(nanobind::module_& m);          // such ranks, each driven by a Python thread
void BindDevice(nanobind::module_& m);         // GPUs
void BindDeviceKernels(nanobind::module_& m);  // one of them and its kernels
void BindDeviceInfos(nanobind::module_& m);    // which way gradients on GPUs take
void BindDeviceTasks(nanobind::module_& m);    // their buckets, ranks as threads without sessions
void BindDeviceCluster(nanobind::module_& m);  // ranks as threads, with tensors on GPUs

}  // namespace smddp
