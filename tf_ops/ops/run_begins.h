// Makes a run of a graph known to the engine before an op of it can fail, so that a run that fails before it has
// brought a collective is not taken for one that has not begun.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "tensorflow/core/graph/graph.h"

namespace smddp::ops {

// Adds an SmddpRunBegins for each of `collectives` that runs in every run of the graph (in no branch and no loop), in
// front of all ops but those that read the next batch: where the data end, no step begins. Nothing is added to graphs
// that read a batch after a collective.
absl::Status AddRunBegins(tensorflow::Graph* graph, const std::vector<tensorflow::Node*>& collectives);

}  // namespace smddp::ops
