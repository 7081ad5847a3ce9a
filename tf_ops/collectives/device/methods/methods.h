// One function per DeviceMethod.
#pragma once

#include "collectives/device/device_context_impl.h"

namespace smddp {

TaskPtr HostAllreduce(DeviceContextImpl& context, const AllreduceAlgorithm& rail, const DeviceCall& call);
TaskPtr GroupAllreduce(DeviceContextImpl& context, const AllreduceAlgorithm& rail, const DeviceCall& call);
// Used instead of GroupAllreduce on a node with one rank.
TaskPtr AloneAllreduce(DeviceContextImpl& context, const AllreduceAlgorithm& rail, const DeviceCall& call);

}  // namespace smddp
