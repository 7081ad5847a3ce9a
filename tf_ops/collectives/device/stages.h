// One way of a bucket each: see DeviceStage.
#pragma once

#include "collectives/device/lane_parts.h"

namespace smddp {

TaskPtr HostStage(Lane& lane, const AllreduceAlgorithm& rail, const DeviceCall& call);
TaskPtr PeerStage(Lane& lane, const AllreduceAlgorithm& rail, const DeviceCall& call);
TaskPtr GroupStage(Lane& lane, const AllreduceAlgorithm& rail, const DeviceCall& call);
// For both of these where a node has one rank.
TaskPtr AloneStage(Lane& lane, const AllreduceAlgorithm& rail, const DeviceCall& call);

}  // namespace smddp
