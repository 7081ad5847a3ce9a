// Adasum (Maleki et al., "Scaling Distributed Training with Adaptive Summation", arXiv 2006.02924): two gradients are
// added so that their common component counts once,
//
//   a (+) b = (1 - a.b / (2 a.a)) a + (1 - a.b / (2 b.b)) b
//
// orthogonal ones as their sum, parallel ones as their mean. More than two are added in a tree that joins neighbours
// first; the ranks beyond a power of two are folded into their neighbours first (patterns/doubling.h). Each tensor
// has its own dot products, computed in float64.
//
// Every step exchanges all data, without regard to nodes: log2(P) steps, S * log2(P) bytes sent by each rank. Both
// sides of a step compute the same sum from the same bits, so all ranks end with equal results.
#pragma once

#include "collectives/fabric.h"
#include "collectives/task.h"
#include "compute/fused_view.h"

namespace smddp {

// Every piece of the view is a tensor. The wire dtype must be floating; values are rounded to it after each step.
// `fabric` and the view outlive the task.
TaskPtr AdasumAllreduce(const Fabric& fabric, uint32_t operation, const FusedView& view);

}  // namespace smddp
