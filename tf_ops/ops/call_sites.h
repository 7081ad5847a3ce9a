// Which of several uses of one collective in a graph is which. Pure: names and numbers, no TensorFlow.
//
// TensorFlow prepares a graph for execution by putting the bodies of functions, loops and branches in the place of the
// calls. A collective of a function that is called twice is there twice then, with equal attributes; what tells the two
// apart is the node's name, which begins with the names of the calls ("StatefulPartitionedCall_1/SmddpAllreduce"). The
// names themselves may differ between ranks: another call on rank 0 alone shifts the numbers in them. Their order does
// not.
#pragma once

#include <string>
#include <vector>

namespace smddp::ops {

// Orders names as people do: "call_2" before "call_10".
bool NaturalLess(const std::string& a, const std::string& b);

// The name without its last part: the calls and name scopes around a node.
std::string PlaceOf(const std::string& node_name);

// For each place its number among the different ones, in natural order.
std::vector<int> NumberPlaces(const std::vector<std::string>& places);

}  // namespace smddp::ops
