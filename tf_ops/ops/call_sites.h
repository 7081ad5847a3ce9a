// Tells apart several uses of one collective in a graph. Pure: names and numbers, no TensorFlow.
//
// TensorFlow prepares a graph for execution by replacing calls with the bodies of functions, loops and branches. A
// collective of a function that is called twice is then in the graph twice, with equal attributes. Only the node's
// name differs: it begins with the names of the calls ("StatefulPartitionedCall_1/SmddpAllreduce"). The names may
// differ between ranks, because another call on rank 0 alone shifts the numbers in them. Their order does not differ.
#pragma once

#include <string>
#include <vector>

namespace smddp::ops {

// Compares numbers in names by value: "call_2" before "call_10".
bool NaturalLess(const std::string& a, const std::string& b);

// The name without its last part: the calls and name scopes around a node.
std::string PlaceOf(const std::string& node_name);

// For each place its index among the distinct ones, in natural order.
std::vector<int> NumberPlaces(const std::vector<std::string>& places);

}  // namespace smddp::ops
