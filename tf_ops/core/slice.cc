#include "core/slice.h"

#include <algorithm>

#include "core/check.h"

namespace smddp {

Range SliceOf(int64_t elements, size_t element_size, int parts, int index) {
  SMDDP_CHECK_OP(elements, >=, 0);
  SMDDP_CHECK_OP(index, <, parts);
  const int64_t granule = std::max<int64_t>(1, static_cast<int64_t>(kSliceAlignment / element_size));
  const int64_t even = (elements + parts - 1) / parts;
  const int64_t each = (even + granule - 1) / granule * granule;
  const int64_t begin = std::min(elements, each * index);
  return {begin, std::min(elements, begin + each)};
}

Range RowsOf(int64_t rows, int parts, int index) {
  const int64_t even = rows / parts, more = rows % parts;
  const int64_t begin = even * index + std::min<int64_t>(index, more);
  return {begin, begin + even + (index < more ? 1 : 0)};
}

}  // namespace smddp
