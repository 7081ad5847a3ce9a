#include "nccl_members.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <sstream>
#include <thread>
#include <utility>

#include "processes.h"

namespace fake_nccl {
namespace {

constexpr auto kPause = std::chrono::microseconds(20);

// The files behind the ids that this process has made, open until all members are there.
struct Ids {
  std::mutex mutex;
  std::set<int> files;
};
Ids& TheIds() {
  static Ids* const ids = new Ids;
  return *ids;
}

// The other member that is not there any more; -1: all are.
int Gone(const State& state) {
  for (int m = 0; m < state.size; ++m) {
    const Member& member = state.meeting().members[m];
    const int pid = member.pid.load();
    if (m != state.member && pid != 0 && (member.gone != 0 || !IsAlive(pid))) return m;
  }
  return -1;
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

}  // namespace

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

Result Failure(const std::string& what, int64_t number, int member) {
  std::istringstream all(Variable("FAKE_NCCL_FAIL", ""));
  for (std::string one; std::getline(all, one, ',');) {
    char name[16] = {};
    int result = 0, at = -1;
    long long n = what == "call" || what == "async" ? 1 : 0;
    if (const size_t sign = one.find('@'); sign != std::string::npos) {
      at = std::atoi(one.c_str() + sign + 1);
      one.resize(sign);
    }
    if (std::sscanf(one.c_str(), "%15[a-z]:%d:%lld", name, &result, &n) < 2) Fatal("FAKE_NCCL_FAIL: " + one);
    if (what == name && (n == number || n == 0) && (at < 0 || at == member)) return static_cast<Result>(result);
  }
  return Result::kSuccess;
}

int64_t NextOf(const std::string& what, int member) {
  static auto* const mutex = new std::mutex;
  static auto* const times = new std::map<std::pair<std::string, int>, int64_t>;
  const std::lock_guard<std::mutex> lock(*mutex);
  return ++(*times)[{what, member}];
}

Result Say(Result result, const std::string& words) {
  last_error = words;
  return result;
}

std::shared_ptr<Shared> Shared::Open(const std::string& path) {
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return nullptr;
  void* const memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  return memory == MAP_FAILED ? nullptr : std::shared_ptr<Shared>(new Shared(memory));
}

Shared::~Shared() { munmap(memory_, kBytes); }

int MakeMeeting() {
  const int file = memfd_create("fake_nccl", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, Shared::kBytes) != 0) return -1;
  const std::lock_guard<std::mutex> lock(TheIds().mutex);
  TheIds().files.insert(file);
  return file;
}

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

void Join(const StatePtr& state) {
  while (Variable("FAKE_NCCL_APART", "0") == "1") {
    if (state->aborted) return;
    std::this_thread::sleep_for(kPause);
  }
  if (!Meet(*state)) return;
  if (state->file >= 0) {
    const std::lock_guard<std::mutex> lock(TheIds().mutex);
    if (TheIds().files.erase(state->file) != 0) close(state->file);
  }
  const std::string unfit = Unfit(*state);
  if (!unfit.empty()) return state->Fail(Result::kInvalidUsage, unfit);
  if (const Result fails = Failure("init", NextOf("init", state->member), state->member); fails != Result::kSuccess) {
    return state->Fail(fails, "joining fails, as FAKE_NCCL_FAIL says");
  }
  const std::lock_guard<std::mutex> lock(state->mutex);
  state->joined = true;
}

}  // namespace fake_nccl
