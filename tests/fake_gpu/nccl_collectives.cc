// Collectives of the fake NCCL, in the order of their streams.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "nccl_members.h"

namespace fake_nccl {
namespace {

constexpr auto kPause = std::chrono::microseconds(20);
constexpr int kTypes[] = {-1, 0, -1, -1, -1, -1, 4, 6, 7, 5};  // ncclDataType_t to DType
constexpr size_t kSizes[] = {0, 1, 0, 0, 0, 0, 2, 4, 8, 2};

struct Work {
  StatePtr state;
  Call call;
  void *from, *into;  // held
  bool stuck;
};

// All members make the same call, or all are told.
bool Agree(const Work& work) {
  State& state = *work.state;
  Member* const members = state.meeting().members;
  members[state.member].call = work.call;
  if (!Meet(state)) return false;
  std::string words;
  for (int m = 0; m < state.size && words.empty(); ++m) {
    if (members[m].call == members[0].call) continue;
    words = "The members make different calls: 0 " + members[0].call.Words() + ", " + std::to_string(m) + " " +
            members[m].call.Words();
  }
  if (!Meet(state)) return false;
  if (words.empty()) return true;
  state.Fail(Result::kInvalidUsage, words);
  return false;
}

void ReduceScatter(const Work& work) {
  State& state = *work.state;
  const size_t size = kSizes[work.call.type];
  const int64_t most = static_cast<int64_t>(kSlot / size) / state.size, each = work.call.each;
  for (int64_t at = 0; at < each; at += most) {
    const int64_t count = std::min(most, each - at);
    for (int m = 0; m < state.size; ++m) {
      std::memcpy(state.shared->slot(state.member) + m * count * size, gpu->data(work.from) + (m * each + at) * size,
                  count * size);
    }
    if (!Meet(state)) return;
    std::vector<const void*> sources;
    for (int m = 0; m < state.size; ++m) sources.push_back(state.shared->slot(m) + state.member * count * size);
    gpu->sum(gpu->data(work.into) + at * size, sources.data(), state.size, count, kTypes[work.call.type]);
    if (!Meet(state)) return;
  }
}

void AllReduce(const Work& work) {
  State& state = *work.state;
  const size_t size = kSizes[work.call.type];
  const int64_t most = static_cast<int64_t>(kSlot / size), each = work.call.each;
  for (int64_t at = 0; at < each; at += most) {
    const int64_t count = std::min(most, each - at);
    std::memcpy(state.shared->slot(state.member), gpu->data(work.from) + at * size, count * size);
    if (!Meet(state)) return;
    std::vector<const void*> sources;
    for (int m = 0; m < state.size; ++m) sources.push_back(state.shared->slot(m));
    gpu->sum(gpu->data(work.into) + at * size, sources.data(), state.size, count, kTypes[work.call.type]);
    if (!Meet(state)) return;
  }
}

void AllGather(const Work& work) {
  State& state = *work.state;
  const size_t bytes = work.call.each * kSizes[work.call.type];
  for (size_t at = 0; at < bytes; at += kSlot) {
    const size_t count = std::min(kSlot, bytes - at);
    std::memcpy(state.shared->slot(state.member), gpu->data(work.from) + at, count);
    if (!Meet(state)) return;
    for (int m = 0; m < state.size; ++m) {
      std::memcpy(gpu->data(work.into) + m * bytes + at, state.shared->slot(m), count);
    }
    if (!Meet(state)) return;
  }
}

void Run(void* argument) {
  const std::unique_ptr<Work> work(static_cast<Work*>(argument));
  if (work->stuck) {
    while (!work->state->aborted) std::this_thread::sleep_for(kPause);
  } else if (!work->state->aborted && Agree(*work)) {
    (work->call.kind == 1 ? ReduceScatter : work->call.kind == 2 ? AllGather : AllReduce)(*work);
  } else {
    // A kernel of NCCL does not end by itself when something went wrong.
    while (!work->state->aborted) std::this_thread::sleep_for(kPause);
  }
  gpu->release(work->from);
  gpu->release(work->into);
  --work->state->running;
}

}  // namespace

namespace {

// Of a thread, as NCCL's.
struct Group {
  int depth = 0;
  std::vector<StatePtr> states;  // with calls in it
};
thread_local Group group;

void Begin(State& state) {
  state.result = Result::kInProgress;
  state.polls = 0;
}

}  // namespace

void Launch(State& state) {
  const auto calls = std::exchange(state.pending, {});
  if (calls.empty()) return;
  gpu->count("launches", 1);
  gpu->count("launched", static_cast<int64_t>(calls.size()));
  for (const auto& call : calls) call(static_cast<int>(calls.size()));
}

Result StartGroup() {
  ++group.depth;
  return Result::kSuccess;
}

Result EndGroup() {
  if (group.depth < 1) Fatal("ncclGroupEnd without ncclGroupStart.");
  if (--group.depth > 0) return Result::kSuccess;
  const std::vector<StatePtr> states = std::exchange(group.states, {});
  for (const StatePtr& state : states) {
    const std::lock_guard<std::mutex> lock(state->mutex);
    Begin(*state);
  }
  return states.empty() ? Result::kSuccess : Result::kInProgress;
}

Result Collective(const StatePtr& state, Call call, const void* from, void* into, void* stream) {
  const std::lock_guard<std::mutex> lock(state->mutex);
  if (call.type < 0 || call.type > 9 || kTypes[call.type] < 0) return Say(Result::kInvalidArgument, "unknown type");
  if (state->result != Result::kSuccess && state->result != Result::kInProgress) {
    return Say(state->result, state->error);
  }
  if (state->result != Result::kSuccess) {
    return Say(Result::kInvalidArgument, "Attempt to use communicator before the previous operation is done");
  }
  call.number = ++state->calls;
  if (const Result fails = Failure("call", state->calls, state->member); fails != Result::kSuccess) {
    return Say(fails, "this call fails, as FAKE_NCCL_FAIL says");
  }
  const size_t part = call.each * kSizes[call.type], whole = part * state->size;
  if (call.kind != 3) {
    const char* const own = static_cast<const char*>(call.kind == 1 ? from : into) + state->member * part;
    const char* const begin = own - state->member * part;
    const char* const other = static_cast<const char*>(call.kind == 1 ? into : from);
    if (other != own && other < begin + whole && other + part > begin) {
      return Say(Result::kInvalidArgument, "the buffers overlap, but not in place");
    }
  }
  auto work = std::make_unique<Work>();
  work->state = state;
  work->call = call;
  work->from = gpu->hold(state->device, from, call.kind == 1 ? whole : part, "NCCL");
  work->into = gpu->hold(state->device, into, call.kind == 2 ? whole : part, "NCCL");
  const Result later = Failure("async", state->calls, state->member);
  work->stuck = later != Result::kSuccess;
  ++state->running;
  state->pending.emplace_back([state = state.get(), stream, later, raw = work.release()](int together) {
    raw->call.together = together;
    gpu->enqueue(state->device, stream, Run, raw);
    if (later == Result::kSuccess) return;
    state->result = later;
    state->error = "the connection broke, as FAKE_NCCL_FAIL says";
  });
  if (group.depth > 0) {
    if (group.states.empty() || group.states.back() != state) group.states.push_back(state);
    return Result::kSuccess;
  }
  Begin(*state);
  return Result::kInProgress;
}

}  // namespace fake_nccl
