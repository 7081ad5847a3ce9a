#include <algorithm>

#include "collectives/task.h"
#include "native/testing.h"

namespace smddp {
namespace {

TEST_CASE("copy: large memory is copied in several steps") {
  constexpr size_t kBytes = (40 << 20) + 7;
  std::vector<uint8_t> from(kBytes), into(kBytes + 1, 9);
  for (size_t i = 0; i < kBytes; ++i) from[i] = static_cast<uint8_t>(i * 31 % 251);
  const TaskPtr task = Copy({into.data(), kBytes}, from.data());
  int steps = 1;
  while (Value(task->Step()) != Progress::kDone) ++steps;
  CHECK(steps == 3);
  CHECK(std::equal(from.begin(), from.end(), into.begin()));
  CHECK(into[kBytes] == 9);
}

TEST_CASE("copy: nothing to copy is no task") {
  std::vector<uint8_t> data(4);
  CHECK(Copy({data.data(), 0}, data.data() + 1) == nullptr);
  CHECK(Copy({data.data(), 4}, data.data()) == nullptr);
}

}  // namespace
}  // namespace smddp
