// Shapes are lists of extents; these are the two things everybody needs of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace smddp {

int64_t ElementCount(const std::vector<int64_t>& shape);   // 1 for a scalar
std::string ShapeText(const std::vector<int64_t>& shape);  // "[3, 2]"

}  // namespace smddp
