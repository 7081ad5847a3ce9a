// One way of a bucket each: see DeviceStage.
#pragma once

#include "collectives/device/lane_parts.h"

namespace smddp {

TaskPtr HostStage(Lane& lane, const AllreduceAlgorithm& rail, const DeviceCall& call);

}  // namespace smddp
