// Small reductions travel inside the control messages: a rank's announcement carries its contribution, the coordinator
// sums, its verdict carries the result. Two messages one after the other where a task would need four, and no slots.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "compute/fused_view.h"
#include "runtime/control/messages.h"

namespace smddp {

using FusedViews = std::vector<std::unique_ptr<FusedView>>;

// Not for requests without elements, where there is nothing to carry, nor with dtypes that the verdict will refuse; and
// not for Adasum, whose order is a tree.
bool FitsInMessage(const FusedViews& views, ReduceOp op);

// The views one after the other, packed; and back.
std::string PackAll(const FusedViews& views);
Status UnpackAll(const FusedViews& views, const std::string& bytes);

// What the ranks' announcements carry, reduced in the order of the ranks. They must agree (Validate); that each has
// brought as many bytes as its tensors need is checked here, because the bytes come from other processes.
Result<std::string> ReduceInline(const std::map<int, Announcement>& by_rank, const Compute& compute);

}  // namespace smddp
