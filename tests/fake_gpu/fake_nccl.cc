// NCCL's binary interface on the fake GPU: members meet in shared memory, in any threads of any processes of one host.
//
// As strict as it can be: a call is put on its stream only when CommGetAsyncError has been asked FAKE_NCCL_POLLS times
// (2), members that make different calls are told, and so are two on one GPU, a second call before the first was
// launched, and whoever uses a communicator that was destroyed.
//
//   FAKE_NCCL_VERSION=n      what ncclGetVersion says: 22703
//   FAKE_NCCL_FAIL=what:result[:n][@member], more with commas between: what fails, with which ncclResult_t
//       id      ncclGetUniqueId
//       start   ncclCommInitRankConfig itself
//       init    joining
//       call    the n-th collective, when it is called
//       async   after the n-th collective was launched; it never ends by itself
//   FAKE_NCCL_HANG=1         ncclCommAbort never returns
//   FAKE_NCCL_SILENT=1       nobody is told that a member has gone; collectives with it wait until they are aborted
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cuda/nccl_abi.h"
#include "gpu_table.h"
#include "processes.h"

#define NCCL_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using smddp::nccl::Config;
using smddp::nccl::Op;
using smddp::nccl::Result;
using smddp::nccl::Type;
using smddp::nccl::UniqueId;

constexpr int kMembers = 16;
constexpr size_t kSlot = size_t{1} << 20;  // what a member shows the others at a time
constexpr auto kPause = std::chrono::microseconds(20);

const GpuTable* gpu = nullptr;
thread_local std::string last_error;

[[noreturn]] void Fatal(const std::string& sentence) {
  std::fprintf(stderr, "fake NCCL: %s\n", sentence.c_str());
  std::abort();
}

std::string Variable(const char* name, const char* otherwise) {
  const char* const value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

// --- FAKE_NCCL_FAIL ---

// The result that `what` has for the n-th time at this member; kSuccess: it does not fail.
Result Failure(const std::string& what, int64_t number, int member) {
  std::istringstream all(Variable("FAKE_NCCL_FAIL", ""));
  for (std::string one; std::getline(all, one, ',');) {
    char name[16] = {};
    int result = 0, at = -1;
    long long n = 1;
    if (const size_t sign = one.find('@'); sign != std::string::npos) {
      at = std::atoi(one.c_str() + sign + 1);
      one.resize(sign);
    }
    if (std::sscanf(one.c_str(), "%15[a-z]:%d:%lld", name, &result, &n) < 2) Fatal("FAKE_NCCL_FAIL: " + one);
    if (what == name && n == number && (at < 0 || at == member)) return static_cast<Result>(result);
  }
  return Result::kSuccess;
}

// --- What the members share ---

struct Call {
  int kind;  // 0: nothing, 1: ReduceScatter, 2: AllGather
  int type;
  uint64_t each, number;
  bool operator==(const Call& other) const {
    return kind == other.kind && type == other.type && each == other.each && number == other.number;
  }
  std::string Words() const {
    const char* const names[] = {"nothing", "ReduceScatter", "AllGather"};
    return std::string(names[kind]) + " number " + std::to_string(number) + " of " + std::to_string(each) +
           " elements of type " + std::to_string(type);
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
  static std::shared_ptr<Shared> Open(const std::string& path) {
    const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (file < 0) return nullptr;
    void* const memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    return memory == MAP_FAILED ? nullptr : std::shared_ptr<Shared>(new Shared(memory));
  }
  ~Shared() { munmap(memory_, kBytes); }
  Meeting& meeting() const { return *static_cast<Meeting*>(memory_); }
  char* slot(int member) const { return static_cast<char*>(memory_) + kHead + member * kSlot; }

  static constexpr size_t kHead = 16384;
  static constexpr size_t kBytes = kHead + kMembers * kSlot;
  static_assert(sizeof(Meeting) <= kHead);

 private:
  explicit Shared(void* memory) : memory_(memory) {}
  void* const memory_;
};

// The files behind the ids that this process has made, open until all members are there.
struct Ids {
  std::mutex mutex;
  std::set<int> files;
};
Ids& TheIds() {
  static Ids* const ids = new Ids;
  return *ids;
}

// --- A communicator ---

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
  std::function<void()> pending;  // the call that is to be launched
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

// The other member that is not there any more; -1: all are.
int Gone(const State& state) {
  for (int m = 0; m < state.size; ++m) {
    const Member& member = state.meeting().members[m];
    const int pid = member.pid.load();
    if (m != state.member && pid != 0 && (member.gone != 0 || !IsAlive(pid))) return m;
  }
  return -1;
}

// Waits for all members. False: this end was aborted.
bool Meet(State& state) {
  Meeting& meeting = state.meeting();
  const int round = meeting.round;
  if (++meeting.arrived == state.size) {
    meeting.arrived = 0;
    ++meeting.round;
    return !state.aborted;
  }
  for (int look = 1; meeting.round == round; ++look) {
    if (state.aborted) return false;
    std::this_thread::sleep_for(kPause);
    if (look % 64 != 0) continue;
    const int gone = Gone(state);
    if (gone >= 0 && meeting.round == round && Variable("FAKE_NCCL_SILENT", "0") != "1") {
      state.Fail(Result::kRemoteError, "member " + std::to_string(gone) + " has gone");
    }
  }
  return !state.aborted;
}

// What is wrong with who has come, or "".
std::string Unfit(const State& state) {
  const Member* const members = state.meeting().members;
  for (int m = 0; m < state.size; ++m) {
    if (members[m].size != state.size) return "the members expect different numbers of members";
    for (int other = 0; other < m; ++other) {
      if (std::strcmp(members[m].uuid, members[other].uuid) == 0) {
        return "Duplicate GPU detected : rank " + std::to_string(other) + " and rank " + std::to_string(m) +
               " both on " + members[m].uuid + "\n";
      }
    }
  }
  return "";
}

void Join(const StatePtr& state) {
  if (!Meet(*state)) return;
  if (state->file >= 0) {
    const std::lock_guard<std::mutex> lock(TheIds().mutex);
    if (TheIds().files.erase(state->file) != 0) close(state->file);
  }
  const std::string unfit = Unfit(*state);
  if (!unfit.empty()) return state->Fail(Result::kInvalidUsage, unfit);
  if (const Result fails = Failure("init", 1, state->member); fails != Result::kSuccess) {
    return state->Fail(fails, "joining fails, as FAKE_NCCL_FAIL says");
  }
  const std::lock_guard<std::mutex> lock(state->mutex);
  state->joined = true;
}

// --- Collectives, on the stream ---

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
    work->call.kind == 1 ? ReduceScatter(*work) : AllGather(*work);
  } else {
    // A kernel of NCCL does not end by itself when something went wrong.
    while (!work->state->aborted) std::this_thread::sleep_for(kPause);
  }
  gpu->release(work->from);
  gpu->release(work->into);
  --work->state->running;
}

// --- Handles ---

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

Result Say(Result result, const std::string& words) {
  last_error = words;
  return result;
}

void Leave(State& state) {
  state.meeting().members[state.member].gone = 1;
  gpu->count("communicators", -1);
}

Result Collective(void* comm, Call call, const void* from, void* into, void* stream) {
  const StatePtr state = Find(comm, "A collective");
  const std::lock_guard<std::mutex> lock(state->mutex);
  if (call.type < 0 || call.type > 9 || kTypes[call.type] < 0) return Say(Result::kInvalidArgument, "unknown type");
  if (state->result != Result::kSuccess) {
    return Say(Result::kInvalidArgument, "Attempt to use communicator before the previous operation is done");
  }
  call.number = ++state->calls;
  if (const Result fails = Failure("call", state->calls, state->member); fails != Result::kSuccess) {
    return Say(fails, "this call fails, as FAKE_NCCL_FAIL says");
  }
  const size_t part = call.each * kSizes[call.type], whole = part * state->size;
  const char* const own = static_cast<const char*>(call.kind == 1 ? from : into) + state->member * part;
  const char *const begin = own - state->member * part, *const other =
                                                            static_cast<const char*>(call.kind == 1 ? into : from);
  if (other != own && other < begin + whole && other + part > begin) {
    return Say(Result::kInvalidArgument, "the buffers overlap, but not in place");
  }
  auto work = std::make_unique<Work>();
  work->state = state;
  work->call = call;
  work->from = gpu->hold(state->device, from, call.kind == 1 ? whole : part, "NCCL");
  work->into = gpu->hold(state->device, into, call.kind == 1 ? part : whole, "NCCL");
  const Result later = Failure("async", state->calls, state->member);
  work->stuck = later != Result::kSuccess;
  ++state->running;
  state->result = Result::kInProgress;
  state->polls = 0;
  state->pending = [state, stream, later, raw = work.release()] {
    gpu->enqueue(state->device, stream, Run, raw);
    if (later == Result::kSuccess) return;
    state->result = later;
    state->error = "the connection broke, as FAKE_NCCL_FAIL says";
  };
  return Result::kInProgress;
}

}  // namespace

NCCL_EXPORT void fake_nccl_use_gpu(const GpuTable* table) { gpu = table; }

NCCL_EXPORT Result ncclGetVersion(int* version) {
  *version = std::atoi(Variable("FAKE_NCCL_VERSION", "22703").c_str());
  return Result::kSuccess;
}

NCCL_EXPORT Result ncclGetUniqueId(UniqueId* id) {
  if (const Result fails = Failure("id", 1, -1); fails != Result::kSuccess) {
    return Say(fails, "no network, as FAKE_NCCL_FAIL says");
  }
  const int file = memfd_create("fake_nccl", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, Shared::kBytes) != 0) return Say(Result::kSystemError, std::strerror(errno));
  {
    const std::lock_guard<std::mutex> lock(TheIds().mutex);
    TheIds().files.insert(file);
  }
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
  if (const Result fails = Failure("start", 1, member); fails != Result::kSuccess) {
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
    } else if (state->pending != nullptr) {
      state->result = Result::kSuccess;
      std::exchange(state->pending, nullptr)();
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
    if (state->pending != nullptr) std::exchange(state->pending, nullptr)();  // ends at once, and gives back its memory
  }
  Leave(*state);
  return Result::kSuccess;
}

NCCL_EXPORT Result ncclReduceScatter(const void* from, void* into, size_t each, Type type, Op, void* comm,
                                     void* stream) {
  return Collective(comm, {1, static_cast<int>(type), each, 0}, from, into, stream);
}

NCCL_EXPORT Result ncclAllGather(const void* from, void* into, size_t each, Type type, void* comm, void* stream) {
  return Collective(comm, {2, static_cast<int>(type), each, 0}, from, into, stream);
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
