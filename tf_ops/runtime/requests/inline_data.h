// Small reductions and allgathers inside the control messages: a rank's announcement contains its contribution, the
// coordinator sums or joins, its verdict contains the result. Two messages in sequence instead of a task's four (of an
// allgather: one for each node), and no slots.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "compute/fused_view.h"
#include "core/buffer.h"
#include "runtime/api/session.h"
#include "runtime/control/messages.h"

namespace smddp {

using FusedViews = std::vector<std::unique_ptr<FusedView>>;

// False for requests without elements, which have no data; for dtypes that the verdict will refuse; and for Adasum,
// whose order is a tree.
bool FitsInMessage(const FusedViews& views, ReduceOp op);

// Packs the views one after another; and unpacks them.
std::string PackAll(const FusedViews& views);
Status UnpackAll(const FusedViews& views, const std::string& bytes);

// Reduces the data of the ranks' announcements in the order of the ranks. The announcements must agree (Validate).
// The number of bytes is checked here, because the data come from other processes.
Result<std::string> ReduceInline(const std::map<int, Announcement>& by_rank, const Compute& compute);

// Of an allgather: the tensors one after another; nothing when they are too large.
std::string PackToGather(const std::vector<TensorRef>& tensors);
// The data of all announcements, in the order of the ranks; nothing when one is without its data, or when they are too
// large together.
std::string GatherInline(const std::map<int, Announcement>& by_rank);
// Distributes them over `blocks`: for each rank those of its tensors.
Status UnpackGathered(const std::string& bytes, const std::vector<std::vector<BufferView>>& blocks);

}  // namespace smddp
