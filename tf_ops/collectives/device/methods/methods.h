// One function per DeviceMethod.
#pragma once

#include "collectives/device/device_context.h"

namespace smddp {

TaskPtr HostAllreduce(DeviceContext& context, const AllreduceAlgorithm& rail, const DeviceCall& call);
TaskPtr GroupAllreduce(DeviceContext& context, const AllreduceAlgorithm& rail, const DeviceCall& call);
// Used instead of GroupAllreduce on a node with one rank.
TaskPtr AloneAllreduce(DeviceContext& context, const AllreduceAlgorithm& rail, const DeviceCall& call);

}  // namespace smddp
