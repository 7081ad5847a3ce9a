// Adasum (Maleki et al., "Scaling Distributed Training with Adaptive Summation", arXiv 2006.02924): two gradients are
// added so that what they have in common counts once,
//
//   a (+) b = (1 - a.b / (2 a.a)) a + (1 - a.b / (2 b.b)) b
//
// orthogonal ones as their sum, parallel ones as their mean. Many are added in a tree that joins neighbours first; the
// ranks beyond a power of two are folded into their neighbours before (patterns/doubling.h). Each tensor has dot
// products of its own, taken in float64.
//
// Every step exchanges everything: log2(P) steps and S * log2(P) bytes sent by each rank, without regard to nodes. Both
// sides of a step compute the same sum from the same bits, so all ranks end with the same ones.
#pragma once

#include "collectives/fabric.h"
#include "collectives/task.h"
#include "compute/fused_view.h"

namespace smddp {

// Every piece of the view is a tensor. The wire dtype must be floating; what travels is rounded to it after each step.
// `fabric` and the view outlive the task.
TaskPtr AdasumAllreduce(const Fabric& fabric, uint32_t operation, const FusedView& view);

}  // namespace smddp
