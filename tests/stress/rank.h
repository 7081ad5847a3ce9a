// One rank's calls, and a look at what came of each.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/api/session.h"
#include "stress/script.h"
#include "stress/values.h"

namespace stress {

// Prints what went wrong, with the seed, and ends the program.
[[noreturn]] void Fail(const std::string& what);

// How many answers have come on threads that drove. Threads: any.
int64_t DrivenAnswers();

// Counts answers. Threads: any.
class Answers {
 public:
  // An answer is expected, exactly one. `look` may be null.
  smddp::DoneCallback Expect(std::string what, std::function<void(const smddp::Status&)> look);
  // Until all have come.
  void WaitAll();
  bool all_come();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t open_ = 0;
};

class Rank {
 public:
  Rank(const Script& script, smddp::Session& session, int rank);

  // Does a round and waits for it. Threads are its own.
  void Run(const Round& round);
  // Submits the first `ops` of a round, but one step of the plan at most, and returns; their answers may be anything,
  // once.
  void Begin(const Round& round, int ops);
  void WaitAll() { answers_.WaitAll(); }
  // Calls `request` and drives until all answers have come, or for so many rounds (-1: any), unless another thread
  // drives.
  void Drive(int rounds, const std::function<void()>& request = [] {});
  // What is asked of a session that has ended is answered, with an error.
  void AskTheDead();

 private:
  // The memory of one request.
  struct Memory {
    std::vector<Bytes> inputs, outputs;
  };

  void Submit(const Round& round, const Op& op, bool check);
  void SubmitReduction(const Round& round, const Op& op, bool check);
  void SubmitStep(const Round& round, const Op& op, bool check);
  void SubmitMove(const Op& op, bool check);
  Memory& NewMemory();
  smddp::TensorRef Tensor(Memory* memory, smddp::DType dtype, const std::vector<int64_t>& shape, bool in_place);
  void CheckReduced(const Op& op, const std::vector<int>& ranks, smddp::DType dtype, int64_t first, const Bytes& data,
                    int salt) const;
  void CheckMoved(const Op& op, const Memory& memory, const std::vector<Bytes>& results) const;
  smddp::DoneCallback Expect(const Op& op, bool check, std::function<void()> look);
  std::string Where(const Op& op) const;

  const Script& script_;
  smddp::Session& session_;
  const int rank_;
  Answers answers_;
  std::mutex mutex_;
  std::deque<Memory> memory_;  // kept until all is over
  int plan_ = -1;
  uint64_t run_ = 0;  // of the plan
  Answers step_;      // of its last one
};

}  // namespace stress
