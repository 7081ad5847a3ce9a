// smddp_tf._core: what Python may ask of the engine without TensorFlow.
#include <nanobind/nanobind.h>

#include "python/bindings.h"

NB_MODULE(_core, m) {
  m.doc() = "The engine of smddp_tf: control, NumPy collectives, and the parts that tests drive directly.";
  nanobind::exception<smddp::EngineError>(m, "EngineError", PyExc_RuntimeError);
  smddp::BindControl(m);
  smddp::BindCollectives(m);
  smddp::BindCompute(m);
  smddp::BindTopology(m);
  smddp::BindHeartbeat(m);
  smddp::BindPlan(m);
  smddp::BindRail(m);
  smddp::BindCluster(m);
  smddp::BindSteps(m);
  smddp::BindRanks(m);
  smddp::BindDevice(m);
  smddp::BindDeviceCluster(m);
  smddp::BindDeviceKernels(m);
  smddp::BindDeviceCards(m);
  smddp::BindDeviceTasks(m);
}
