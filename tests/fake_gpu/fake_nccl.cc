// NCCL's binary interface on the fake GPU: members meet in shared memory, in any threads of any processes of one host.
//
// As strict as it can be: a call is put on its stream only when CommGetAsyncError has been asked FAKE_NCCL_POLLS times
// (2), members that make different calls, or other calls together, are told, and so are two on one GPU, a second call
// before the first was launched, and whoever uses a communicator that was destroyed.
//
//   FAKE_NCCL_VERSION=n      what ncclGetVersion says: 22703
//   FAKE_NCCL_FAIL=what:result[:n][@member], more with commas between: what fails, with which ncclResult_t
//       id      ncclGetUniqueId; with n only the n-th time in this process, as the next two
//       start   ncclCommInitRankConfig itself, so that the other members wait for this one
//       init    joining
//       call    the n-th collective, when it is called
//       async   after the n-th collective was launched; it never ends by itself
//   FAKE_NCCL_APART=1        the members do not find one another, and go on looking
//   FAKE_NCCL_HANG=1         ncclCommAbort never returns
//   FAKE_NCCL_SILENT=1       nobody is told that a member has gone; collectives with it wait until they are aborted
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <thread>
#include <utility>

#include "nccl_members.h"

#define NCCL_EXPORT extern "C" __attribute__((visibility("default")))

using fake_nccl::Failure;
using fake_nccl::Fatal;
using fake_nccl::gpu;
using fake_nccl::kMembers;
using fake_nccl::last_error;
using fake_nccl::MakeMeeting;
using fake_nccl::Member;
using fake_nccl::NextOf;
using fake_nccl::Say;
using fake_nccl::Shared;
using fake_nccl::State;
using fake_nccl::StatePtr;
using fake_nccl::Variable;
using smddp::nccl::Config;
using smddp::nccl::Op;
using smddp::nccl::Result;
using smddp::nccl::Type;
using smddp::nccl::UniqueId;

namespace {

struct Communicators {
  std::mutex mutex;
  std::map<void*, StatePtr> known;  // null: destroyed
};
Communicators& All() {
  static Communicators* const all = new Communicators;
  return *all;
}

StatePtr Find(void* comm, const char* call, bool remove = false) {
  Communicators& all = All();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = all.known.find(comm);
  if (found == all.known.end()) Fatal(std::string(call) + " got something that is not a communicator.");
  if (found->second == nullptr) Fatal(std::string(call) + " got a communicator that was destroyed.");
  StatePtr state = found->second;
  if (remove) found->second = nullptr;
  return state;
}

void* Handle(StatePtr state) {
  void* const handle = new char;  // never deleted: no number twice
  Communicators& all = All();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.known[handle] = std::move(state);
  gpu->count("communicators", 1);
  return handle;
}

void Leave(State& state) {
  state.meeting().members[state.member].gone = 1;
  gpu->count("communicators", -1);
}

}  // namespace

NCCL_EXPORT void fake_nccl_use_gpu(const GpuTable* table) { gpu = table; }

NCCL_EXPORT Result ncclGetVersion(int* version) {
  *version = std::atoi(Variable("FAKE_NCCL_VERSION", "22703").c_str());
  return Result::kSuccess;
}

NCCL_EXPORT Result ncclGetUniqueId(UniqueId* id) {
  if (const Result fails = Failure("id", NextOf("id", -1), -1); fails != Result::kSuccess) {
    return Say(fails, "no network, as FAKE_NCCL_FAIL says");
  }
  if (gpu != nullptr) gpu->count("ids", 1);
  const int file = MakeMeeting();
  if (file < 0) return Say(Result::kSystemError, std::strerror(errno));
  std::random_device random;
  *id = {};
  std::snprintf(id->bytes, sizeof id->bytes, "%d:%d:%08x", getpid(), file, random());
  return Result::kSuccess;
}

NCCL_EXPORT Result ncclCommInitRankConfig(void** comm, int size, UniqueId id, int member, Config* config) {
  *comm = nullptr;
  int pid = 0, file = 0;
  if (gpu == nullptr) return Say(Result::kUnhandledCudaError, "CUDA driver version is insufficient");
  if (config->magic != 0xcafebeef || config->size < 24 || config->version < 21400) {
    return Say(Result::kInvalidArgument, "ncclConfig_t argument not initialized");
  }
  if (config->blocking != 0) Fatal("Only communicators that do not block are made here.");
  if (size > kMembers || std::sscanf(id.bytes, "%d:%d:", &pid, &file) != 2) {
    return Say(Result::kInvalidArgument, "invalid id or size");
  }
  if (const Result fails = Failure("start", NextOf("start", member), member); fails != Result::kSuccess) {
    return Say(fails, "starting fails, as FAKE_NCCL_FAIL says");
  }
  auto state = std::make_shared<State>();
  state->shared = Shared::Open("/proc/" + std::to_string(pid) + "/fd/" + std::to_string(file));
  if (state->shared == nullptr) return Say(Result::kSystemError, "the process that made the id has gone");
  state->size = size;
  state->member = member;
  state->device = gpu->current();
  state->file = pid == getpid() ? file : -1;
  Member& self = state->meeting().members[member];
  self.size = size;
  std::snprintf(self.uuid, sizeof self.uuid, "%s", gpu->uuid(state->device));
  int nobody = 0;
  if (!self.pid.compare_exchange_strong(nobody, getpid())) {
    return Say(Result::kInvalidUsage, "member " + std::to_string(member) + " is there already");
  }
  *comm = Handle(state);
  std::thread([state] { Join(state); }).detach();  // ends when all are there, or with Abort
  return Result::kInProgress;
}

NCCL_EXPORT Result ncclCommGetAsyncError(void* comm, Result* error) {
  const StatePtr state = Find(comm, "ncclCommGetAsyncError");
  const std::lock_guard<std::mutex> lock(state->mutex);
  const bool wait = ++state->polls < std::atoi(Variable("FAKE_NCCL_POLLS", "2").c_str());
  if (state->result == Result::kInProgress && !wait) {
    if (state->finalizing) {
      if (state->running == 0) state->result = Result::kSuccess;
    } else if (!state->pending.empty()) {
      state->result = Result::kSuccess;
      fake_nccl::Launch(*state);
    } else if (state->joined) {
      state->result = Result::kSuccess;
    }
  }
  *error = state->result;
  last_error = state->error;
  return Result::kSuccess;
}

NCCL_EXPORT Result ncclCommFinalize(void* comm) {
  const StatePtr state = Find(comm, "ncclCommFinalize");
  const std::lock_guard<std::mutex> lock(state->mutex);
  if (state->result != Result::kSuccess) return Say(Result::kInvalidArgument, "the communicator is not ready");
  state->finalizing = true;
  state->result = Result::kInProgress;
  state->polls = 0;
  return Result::kInProgress;
}

NCCL_EXPORT Result ncclCommDestroy(void* comm) {
  const StatePtr state = Find(comm, "ncclCommDestroy", true);
  if (state->running != 0) Fatal("ncclCommDestroy while collectives run.");
  Leave(*state);
  return Result::kSuccess;
}

NCCL_EXPORT Result ncclCommAbort(void* comm) {
  while (Variable("FAKE_NCCL_HANG", "0") == "1") std::this_thread::sleep_for(std::chrono::milliseconds(10));
  const StatePtr state = Find(comm, "ncclCommAbort", true);
  state->aborted = true;
  {
    const std::lock_guard<std::mutex> lock(state->mutex);
    fake_nccl::Launch(*state);  // ends at once, and gives back its memory
  }
  Leave(*state);
  return Result::kSuccess;
}

NCCL_EXPORT Result ncclGroupStart() { return fake_nccl::StartGroup(); }
NCCL_EXPORT Result ncclGroupEnd() { return fake_nccl::EndGroup(); }

NCCL_EXPORT Result ncclAllReduce(const void* from, void* into, size_t each, Type type, Op, void* comm, void* stream) {
  return Collective(Find(comm, "ncclAllReduce"), {3, static_cast<int>(type), each, 0}, from, into, stream);
}

NCCL_EXPORT Result ncclReduceScatter(const void* from, void* into, size_t each, Type type, Op, void* comm,
                                     void* stream) {
  return Collective(Find(comm, "ncclReduceScatter"), {1, static_cast<int>(type), each, 0}, from, into, stream);
}

NCCL_EXPORT Result ncclAllGather(const void* from, void* into, size_t each, Type type, void* comm, void* stream) {
  return Collective(Find(comm, "ncclAllGather"), {2, static_cast<int>(type), each, 0}, from, into, stream);
}

NCCL_EXPORT const char* ncclGetErrorString(Result result) {
  constexpr const char* kWords[] = {"no error",
                                    "unhandled cuda error",
                                    "unhandled system error",
                                    "internal error",
                                    "invalid argument",
                                    "invalid usage",
                                    "remote process exited or there was a network error",
                                    "NCCL operation in progress"};
  const auto number = static_cast<size_t>(result);
  return number < std::size(kWords) ? kWords[number] : "unknown result code";
}

NCCL_EXPORT const char* ncclGetLastError(void*) { return last_error.c_str(); }
