// Tasks of several members of a group, stepped in turn by one thread over the mailboxes of tests/inproc.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "collectives/rail/algorithm.h"
#include "inproc/hub.h"
#include "native/tasks.h"
#include "native/testing.h"

namespace smddp {

constexpr int kFirstMember = 10;  // the world rank of member 0: members are not numbered like ranks

class Members {
 public:
  explicit Members(int size) : hub_(kFirstMember + size) {
    std::vector<int> ranks;
    for (int member = 0; member < size; ++member) {
      ranks.push_back(kFirstMember + member);
      transports_.push_back(std::make_unique<InprocTransport>(hub_, ranks.back()));
    }
    group_ = Group(ranks);
  }

  int size() const { return group_.size(); }
  const Group& group() const { return group_; }
  int rank(int member) const { return group_.world_rank(member); }
  InprocTransport& transport(int member) { return *transports_[member]; }

  // Steps all tasks, one for each member (null: none), until they are done.
  void Run(std::vector<TaskPtr> tasks) {
    std::vector<Transport*> transports;
    for (const auto& transport : transports_) transports.push_back(transport.get());
    RunTasks(std::move(tasks), transports, /*patience=*/3);
  }

 private:
  InprocHub hub_;
  Group group_;
  std::vector<std::unique_ptr<InprocTransport>> transports_;
};

// Whole numbers that differ by member and position; their sums are exact in float32.
inline std::vector<float> ValuesOf(int member, int64_t elements) {
  std::vector<float> values(static_cast<size_t>(elements));
  for (int64_t i = 0; i < elements; ++i) values[i] = static_cast<float>((i * 7 + member * 131) % 1009);
  return values;
}
inline std::vector<float> SumOf(int members, int64_t elements) {
  std::vector<float> sum(static_cast<size_t>(elements), 0);
  for (int member = 0; member < members; ++member) {
    const std::vector<float> values = ValuesOf(member, elements);
    for (int64_t i = 0; i < elements; ++i) sum[i] += values[i];
  }
  return sum;
}

// Lets all members sum `data`, one list of equal length for each, in place.
inline void Allreduce(const AllreduceAlgorithm& algorithm, Members* members, std::vector<std::vector<float>>* data) {
  std::vector<TaskPtr> tasks;
  for (size_t member = 0; member < data->size(); ++member) {
    std::vector<float>& values = (*data)[member];
    RailCall call;
    call.data = {values.data(), values.size() * sizeof(float)};
    call.elements = static_cast<int64_t>(values.size());
    tasks.push_back(
        algorithm.Begin(members->group(), members->rank(member), members->transport(member), CpuCompute(), call));
  }
  members->Run(std::move(tasks));
}

// Sums of several lengths with 1 to 9 members: they are exact and equal on all, and what the busiest sends is what the
// algorithm says it costs.
inline void CheckAlgorithm(const AllreduceAlgorithm& algorithm) {
  for (const int size : {1, 2, 3, 4, 5, 7, 8, 9}) {
    for (const int64_t elements : {0, 1, size - 1, size + 1, 33, 32 * size, 160 * size + 3}) {
      CAPTURE(size);
      CAPTURE(elements);
      Members members(size);
      std::vector<std::vector<float>> data;
      for (int member = 0; member < size; ++member) data.push_back(ValuesOf(member, elements));
      Allreduce(algorithm, &members, &data);
      for (int member = 0; member < size; ++member) CHECK(data[member] == SumOf(size, elements));
    }
    if (size == 1) continue;
    const int64_t elements = int64_t{2520} * 32;  // slices are equal
    const AlgorithmCost cost = algorithm.cost(size);
    Members members(size);
    std::vector<std::vector<float>> data(size, std::vector<float>(elements, 1));
    Allreduce(algorithm, &members, &data);
    int64_t bytes = 0;
    size_t messages = 0;
    for (int member = 0; member < size; ++member) {
      bytes = std::max(bytes, members.transport(member).bytes_sent());
      messages = std::max(messages, members.transport(member).sent().size());
    }
    CHECK(static_cast<double>(bytes) == doctest::Approx(cost.traffic * 4 * static_cast<double>(elements)));
    CHECK(messages == static_cast<size_t>(cost.messages));
  }
}

// No chain of messages that wait for one another is longer than the algorithm says, with sizes that are a power of two
// and others.
inline void CheckChains(const AllreduceAlgorithm& algorithm) {
  for (const int size : {2, 3, 4, 6, 8}) {
    Members members(size);
    std::vector<std::vector<float>> data(size, std::vector<float>(2048, 1));
    Allreduce(algorithm, &members, &data);
    int longest = 0;
    for (int member = 0; member < size; ++member) longest = std::max(longest, members.transport(member).depth());
    const int most = algorithm.cost(size).steps;
    CHECK(longest <= most);
    CHECK(longest >= most - ((size & (size - 1)) != 0 ? 1 : 0));  // folded: not every chain is the longest
  }
}

}  // namespace smddp
