// Small reductions inside the control messages: a rank's announcement contains its contribution, the coordinator
// sums, its verdict contains the result. Two messages in sequence instead of a task's four, and no slots.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "compute/fused_view.h"
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

}  // namespace smddp
