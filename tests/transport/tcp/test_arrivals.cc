#include <cstring>

#include "native/testing.h"
#include "transport/tcp/arrivals.h"

namespace smddp {
namespace {

std::vector<int> Numbers(int first, size_t count) {
  std::vector<int> numbers(count);
  for (size_t i = 0; i < count; ++i) numbers[i] = first + static_cast<int>(i);
  return numbers;
}

BufferView View(std::vector<int>* numbers) { return {numbers->data(), numbers->size() * sizeof(int)}; }

// A whole message comes.
Status Come(Arrivals* arrivals, int peer, uint32_t tag, std::vector<int> numbers) {
  BufferView into;
  auto arrival = arrivals->Begin(peer, tag, View(&numbers).size, &into);
  SMDDP_RETURN_IF_ERROR(arrival.status());
  std::memcpy(into.data, numbers.data(), View(&numbers).size);
  arrivals->End(arrival->get());
  return Status::Ok();
}

TEST_CASE("arrivals: straight to who has asked, or kept until somebody asks") {
  Arrivals arrivals;
  std::vector<int> early(3), late(3);
  CHECK(arrivals.Ask(1, 0, 8, View(&late)).ok());
  BufferView into;
  const auto arrival = Value(arrivals.Begin(0, 8, 12, &into));
  CHECK(into.data == View(&late).data);
  CHECK_FALSE(arrivals.Take(1));
  std::memcpy(into.data, Numbers(5, 3).data(), 12);
  arrivals.End(arrival.get());
  CHECK(arrivals.Take(1));
  CHECK(late == Numbers(5, 3));

  CHECK(Come(&arrivals, 0, 9, Numbers(20, 3)).ok());
  CHECK(arrivals.Ask(2, 0, 9, View(&early)).ok());
  CHECK(arrivals.Take(2));
  CHECK_FALSE(arrivals.Has(2));
  CHECK(early == Numbers(20, 3));
  CHECK(arrivals.empty());
}

TEST_CASE("arrivals: messages of one peer and tag stay in order, others do not wait") {
  Arrivals arrivals;
  std::vector<int> first(2), second(2), other(2);
  CHECK(Come(&arrivals, 1, 4, Numbers(10, 2)).ok());
  CHECK(arrivals.Ask(1, 1, 4, View(&first)).ok());
  CHECK(arrivals.Ask(2, 1, 4, View(&second)).ok());
  CHECK(arrivals.Ask(3, 2, 4, View(&other)).ok());
  CHECK(Come(&arrivals, 2, 4, Numbers(50, 2)).ok());
  CHECK(Come(&arrivals, 1, 4, Numbers(30, 2)).ok());
  CHECK(first == Numbers(10, 2));
  CHECK(second == Numbers(30, 2));
  CHECK(other == Numbers(50, 2));
}

TEST_CASE("arrivals: a receive that is asked for while its message arrives") {
  Arrivals arrivals;
  std::vector<int> into(2);
  BufferView kept;
  const auto arrival = Value(arrivals.Begin(3, 1, 8, &kept));
  CHECK(arrivals.Ask(9, 3, 1, View(&into)).ok());
  std::memcpy(kept.data, Numbers(7, 2).data(), 8);
  CHECK_FALSE(arrivals.Take(9));
  arrivals.End(arrival.get());
  CHECK(arrivals.Take(9));
  CHECK(into == Numbers(7, 2));
}

TEST_CASE("arrivals: another length than was asked for is an error, early or late") {
  Arrivals arrivals;
  std::vector<int> two(2);
  CHECK(arrivals.Ask(1, 6, 1, View(&two)).ok());
  CHECK(Come(&arrivals, 6, 1, Numbers(0, 3)).message() == "Expected a message of 8 bytes from rank 6, received 12.");
  CHECK(Come(&arrivals, 6, 2, Numbers(0, 1)).ok());
  CHECK(arrivals.Ask(2, 6, 2, View(&two)).message() == "Expected a message of 8 bytes from rank 6, received 4.");
}

TEST_CASE("arrivals: after Clear no memory of callers is written") {
  Arrivals arrivals;
  std::vector<int> into = Numbers(1, 2);
  CHECK(arrivals.Ask(1, 0, 1, View(&into)).ok());
  arrivals.Clear();
  CHECK(Come(&arrivals, 0, 1, Numbers(70, 2)).ok());
  CHECK(into == Numbers(1, 2));
  CHECK(arrivals.empty());
}

}  // namespace
}  // namespace smddp
