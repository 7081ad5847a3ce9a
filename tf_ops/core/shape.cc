#include "core/shape.h"

#include "core/text.h"

namespace smddp {

int64_t ElementCount(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (int64_t extent : shape) count *= extent;
  return count;
}

bool IsPossible(const std::vector<int64_t>& shape) {
  int64_t count = 1;  // the product of the extents other than 0, which must not hide large ones
  for (const int64_t extent : shape) {
    if (extent < 0 || extent > kMaxElements / count) return false;
    if (extent > 0) count *= extent;
  }
  return true;
}

std::string ShapeText(const std::vector<int64_t>& shape) { return "[" + Listed(shape) + "]"; }

}  // namespace smddp
