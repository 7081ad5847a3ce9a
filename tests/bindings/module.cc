// _smddp_test_core: what tests and benchmarks ask of the engine beyond smddp_tf._core, which must be loaded before it.
// tests/native_module.py loads both.
#include <nanobind/nanobind.h>

#include "bindings/bind.h"

NB_MODULE(_smddp_test_core, m) {
  m.doc() = "The parts of the engine of smddp_tf that tests and benchmarks drive directly.";
  smddp::BindCollectives(m);
  smddp::BindFacts(m);
  smddp::BindCompute(m);
  smddp::BindTopology(m);
  smddp::BindRail(m);
  smddp::BindCluster(m);
  smddp::BindSteps(m);
  smddp::BindRanks(m);
  smddp::BindDevice(m);
  smddp::BindDeviceKernels(m);
  smddp::BindDeviceTasks(m);
  smddp::BindDeviceCluster(m);
}
