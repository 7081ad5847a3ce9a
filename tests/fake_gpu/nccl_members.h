// The members of a communicator of the fake NCCL (fake_nccl.cc), who share memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cuda/nccl/nccl_abi.h"
#include "gpu_table.h"

namespace fake_nccl {

using smddp::nccl::Result;

constexpr int kMembers = 16;
constexpr size_t kSlot = size_t{1} << 20;  // what a member shows the others at a time

// The fake GPU; null before it has loaded this library.
extern const GpuTable* gpu;

[[noreturn]] void Fatal(const std::string& sentence);
std::string Variable(const char* name, const char* otherwise);
// The result that `what` has for the n-th time at this member (FAKE_NCCL_FAIL); kSuccess: it does not fail.
Result Failure(const std::string& what, int64_t number, int member);
// How often this has been asked for `what` and `member`, with this time.
int64_t NextOf(const std::string& what, int member);
// What ncclGetLastError says on this thread.
extern thread_local std::string last_error;
Result Say(Result result, const std::string& words);

struct Call {
  int kind;  // 0: nothing, 1: ReduceScatter, 2: AllGather, 3: AllReduce
  int type;
  uint64_t each, number;
  int together = 1;  // calls of the same launch (ncclGroupStart)
  bool operator==(const Call& other) const {
    return kind == other.kind && type == other.type && each == other.each && number == other.number &&
           together == other.together;
  }
  std::string Words() const {
    const char* const names[] = {"nothing", "ReduceScatter", "AllGather", "AllReduce"};
    return std::string(names[kind]) + " number " + std::to_string(number) + " of " + std::to_string(each) +
           " elements of type " + std::to_string(type) + ", " + std::to_string(together) + " together";
  }
};

struct Member {
  std::atomic<int> pid;   // 0: not here yet
  std::atomic<int> gone;  // has aborted or destroyed its end
  int size;
  char uuid[64];
  Call call;
};

struct Meeting {
  std::atomic<int> arrived;
  std::atomic<int> round;
  Member members[kMembers];
};

class Shared {
 public:
  // Null: the process that made it has gone.
  static std::shared_ptr<Shared> Open(const std::string& path);
  ~Shared();
  Meeting& meeting() const { return *static_cast<Meeting*>(memory_); }
  char* slot(int member) const { return static_cast<char*>(memory_) + kHead + member * kSlot; }

  static constexpr size_t kHead = 16384;
  static constexpr size_t kBytes = kHead + kMembers * kSlot;
  static_assert(sizeof(Meeting) <= kHead);

 private:
  explicit Shared(void* memory) : memory_(memory) {}
  void* const memory_;
};

// A new meeting; -1: none. Its file stays open in this process until all members are there.
int MakeMeeting();

// One end.
struct State {
  std::shared_ptr<Shared> shared;
  int size = 0, member = 0, device = 0;
  int file = -1;  // of the id, if this process has made it
  std::atomic<bool> aborted{false};
  std::atomic<int> running{0};  // calls on streams

  std::mutex mutex;
  Result result = Result::kInProgress;  // what CommGetAsyncError says
  std::string error;
  int polls = 0;
  std::vector<std::function<void(int together)>> pending;  // the calls that are to be launched
  bool joined = false, finalizing = false;
  int64_t calls = 0;

  Meeting& meeting() const { return shared->meeting(); }
  void Fail(Result why, const std::string& words) {
    const std::lock_guard<std::mutex> lock(mutex);
    if (result != Result::kSuccess && result != Result::kInProgress) return;
    result = why;
    error = words;
  }
};
using StatePtr = std::shared_ptr<State>;

// Waits for all members. False: this end was aborted.
bool Meet(State& state);
// Waits for all to come, in a thread of its own.
void Join(const StatePtr& state);

// Puts the pending calls on their streams. The caller holds the state's mutex.
void Launch(State& state);
// What ncclGroupStart and ncclGroupEnd do. Calls in between are launched together.
Result StartGroup();
Result EndGroup();
// A call of a collective, to be launched later.
Result Collective(const StatePtr& state, Call call, const void* from, void* into, void* stream);

}  // namespace fake_nccl
