// Shapes are lists of extents; these are the two things everybody needs of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace smddp {

// What fits into any memory: as many elements in all and along each dimension, so that sums over ranks and products
// with sizes of elements stay within int64_t.
constexpr int64_t kMaxElements = int64_t{1} << 44;
// Is it a shape that some tensor could have? Of one that another rank sent, nobody else has asked.
bool IsPossible(const std::vector<int64_t>& shape);

int64_t ElementCount(const std::vector<int64_t>& shape);   // 1 for a scalar
std::string ShapeText(const std::vector<int64_t>& shape);  // "[3, 2]"

}  // namespace smddp
