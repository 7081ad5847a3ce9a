#include "collectives/slice_exchange.h"
#include "native/members.h"

namespace smddp {
namespace {

class Exchange {
 public:
  Exchange(const Members& members, int member, const RailCall& call)
      : exchange_(members.group(), members.rank(member), call), received_(exchange_.received_bytes() / sizeof(float)) {}

  Status Scatter(Transfers* transfers) {
    return exchange_.Scatter(transfers, reinterpret_cast<std::byte*>(received_.data()));
  }
  Status SumAndGather(Transfers* transfers) {
    auto* const mine = reinterpret_cast<float*>(exchange_.mine().data);
    const std::vector<void*> terms = exchange_.Terms(reinterpret_cast<std::byte*>(received_.data()));
    for (int64_t i = 0; i < exchange_.elements(); ++i) {
      float sum = 0;
      for (void* term : terms) sum = 2 * sum + static_cast<float*>(term)[i];  // the order of the members matters
      mine[i] = sum;
    }
    return exchange_.Gather(transfers);
  }

 private:
  SliceExchange exchange_;
  std::vector<float> received_;
};

TEST_CASE(
    "slice exchange: each member gets its slice of all, in the order of the members, and gives back what it made") {
  for (const int size : {1, 2, 3, 5}) {
    for (const int64_t elements : {0, 1, 33, 32 * size, 100 * size + 1}) {
      CAPTURE(size);
      CAPTURE(elements);
      Members members(size);
      std::vector<std::vector<float>> data;
      std::vector<TaskPtr> tasks;
      for (int member = 0; member < size; ++member) data.push_back(ValuesOf(member, elements));
      std::vector<float> expected(elements, 0);
      for (const std::vector<float>& values : data) {
        for (int64_t i = 0; i < elements; ++i) expected[i] = 2 * expected[i] + values[i];
      }
      for (int member = 0; member < size; ++member) {
        RailCall call;
        call.data = {data[member].data(), data[member].size() * sizeof(float)};
        call.elements = elements;
        const auto exchange = std::make_shared<Exchange>(members, member, call);
        tasks.push_back(InStages("exchange", members.transport(member),
                                 {[exchange](Transfers* transfers) { return exchange->Scatter(transfers); },
                                  [exchange](Transfers* transfers) { return exchange->SumAndGather(transfers); }}));
      }
      members.Run(std::move(tasks));
      for (const std::vector<float>& values : data) CHECK(values == expected);
    }
  }
}

}  // namespace
}  // namespace smddp
