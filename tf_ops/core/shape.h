// Functions on shapes; a shape is a list of extents.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace smddp {

// An upper limit, for the number of elements and for each dimension, that no real tensor reaches. It keeps sums over
// ranks and products with element sizes within int64_t.
constexpr int64_t kMaxElements = int64_t{1} << 44;
// Could a tensor have this shape? Shapes from other ranks must be checked.
bool IsPossible(const std::vector<int64_t>& shape);

int64_t ElementCount(const std::vector<int64_t>& shape);   // 1 for a scalar
std::string ShapeText(const std::vector<int64_t>& shape);  // "[3, 2]"

}  // namespace smddp
