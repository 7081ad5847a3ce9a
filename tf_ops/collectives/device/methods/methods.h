// One method each: see DeviceMethod.
#pragma once

#include "collectives/device/device_context_impl.h"

namespace smddp {

TaskPtr HostAllreduce(DeviceContextImpl& context, const AllreduceAlgorithm& rail, const DeviceCall& call);
TaskPtr PeerAllreduce(DeviceContextImpl& context, const AllreduceAlgorithm& rail, const DeviceCall& call);
TaskPtr GroupAllreduce(DeviceContextImpl& context, const AllreduceAlgorithm& rail, const DeviceCall& call);
// For both of these where a node has one rank.
TaskPtr AloneAllreduce(DeviceContextImpl& context, const AllreduceAlgorithm& rail, const DeviceCall& call);

}  // namespace smddp
