// The process's only session manager. Other global state is limited to facts of the process (log.cc, forked.cc,
// mpi_life.cc, stack_dump.cc, gpu/devices.cc).
#include <dlfcn.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <future>
#include <mutex>

#include "core/env/env.h"
#include "core/process/forked.h"
#include "runtime/api/session.h"
#include "runtime/gpu/devices.h"
#include "runtime/session/process_watchdog.h"
#include "runtime/session/session_manager.h"
#include "transport/mpi_library.h"

namespace smddp {
namespace {

std::mutex g_starting;  // one StartSession at a time
std::mutex g_mutex;     // of g_manager; held only briefly
PlanRegistry g_plans;   // outlives the session manager
MpiLibrary g_no_mpi;
std::atomic<MpiLibrary*> g_mpi{&g_no_mpi};  // or that which is loaded
std::atomic<bool> g_was_ended{false};
// Never destroyed: a fork must not end its copy of it.
std::shared_ptr<SessionManager>& g_manager = *new std::shared_ptr<SessionManager>();

// At exit: the end of the session, which waits for the other ranks. Never destroyed, as that would wait too.
std::future<void>& g_left = *new std::future<void>();

constexpr std::chrono::seconds kLeaveSeconds(1);         // inside of Python's exit; few need longer
constexpr std::chrono::seconds kAfterFailureSeconds(5);  // for the other ranks to end by themselves

// With another exit code than 0 the other ranks, which may be in code of their own, are not waited for: the launcher
// ends them when this process has ended. Nobody knows the code before the process's own exit, Python neither.
void EndLeaving(int exit_code, void*) {
  (void)StopSession(/*at_exit=*/true);
  if (IsFork() || !g_left.valid()) return;
  if (exit_code == 0) return g_left.wait();
  if (g_left.wait_for(kAfterFailureSeconds) != std::future_status::ready) TheMpi().Abandon();
}

// Lives as long as the process, including its exit; made when the first session begins.
ProcessWatchdog& TheWatchdog() {
  static ProcessWatchdog* const watchdog = new ProcessWatchdog();
  return *watchdog;
}

// Null in a fork, where the lock is not touched: another thread may have held it when the process was forked.
std::shared_ptr<SessionManager> CurrentManager() {
  if (IsFork()) return nullptr;
  std::lock_guard<std::mutex> lock(g_mutex);
  return g_manager;
}

}  // namespace

Status StartSession(const StartOptions& options) {
  if (IsFork()) return NotInitialized();
  WatchForks();
  std::lock_guard<std::mutex> starting(g_starting);
  if (CurrentManager() != nullptr) return Status::Ok();
  SMDDP_ASSIGN_OR_RETURN(const bool needs_mpi, NeedsMpi(options.communicator != nullptr, TheMpi().is_initialized()));
  const bool with_mpi = needs_mpi && options.world.addresses.empty();
  SMDDP_ASSIGN_OR_RETURN(auto manager, SessionManager::Start(options, g_plans, TheWatchdog(), TheMpi(), with_mpi));
  {
    std::lock_guard<std::mutex> lock(g_mutex);
    g_manager = std::move(manager);
  }
  // Registered after MPI's own handler, so it runs before it: the engine must have stopped when MPI is finalised.
  [[maybe_unused]] static const int registered = on_exit(EndLeaving, nullptr);
  return Status::Ok();
}

Status StopSession(bool at_exit) {
  if (IsFork()) return Status::Ok();
  std::shared_ptr<SessionManager> leaving;
  {
    std::lock_guard<std::mutex> lock(g_mutex);
    std::swap(leaving, g_manager);
  }
  if (leaving == nullptr) return Status::Ok();
  g_was_ended = true;
  if (!at_exit || !TheMpi().ends_at_exit()) {  // who else ends MPI, such as mpi4py, does so inside of Python's exit
    leaving->Stop(at_exit);
    return Status::Ok();
  }
  g_left = std::async(std::launch::async, [leaving] { leaving->Stop(/*at_exit=*/true); });
  g_left.wait_for(kLeaveSeconds);
  return Status::Ok();
}

std::shared_ptr<Session> CurrentSession() {
  const std::shared_ptr<SessionManager> manager = CurrentManager();
  return manager != nullptr ? manager->session() : nullptr;
}

Status SessionFailure() {
  const std::shared_ptr<SessionManager> manager = CurrentManager();
  return manager != nullptr ? manager->failure() : Status::Ok();
}

Result<std::shared_ptr<Session>> SessionOf(int process_set) {
  const std::shared_ptr<SessionManager> manager = CurrentManager();
  if (manager == nullptr) return NotInitialized(g_was_ended);
  return manager->SessionOf(process_set);
}

Result<std::vector<int>> AddProcessSets(const std::vector<ProcessSetSpec>& specs, bool at_start) {
  const std::shared_ptr<SessionManager> manager = CurrentManager();
  if (manager == nullptr) return NotInitialized(g_was_ended);
  return manager->Add(specs, at_start);
}

Result<bool> RemoveProcessSet(int process_set) {
  const std::shared_ptr<SessionManager> manager = CurrentManager();
  if (manager == nullptr) return NotInitialized(g_was_ended);
  return manager->Remove(process_set);
}

Status AddOwnProcessSet(const std::vector<int>& ranks, int number) {
  const std::shared_ptr<SessionManager> manager = CurrentManager();
  return manager != nullptr ? manager->AddOwn(ranks, number) : NotInitialized(g_was_ended);
}

std::map<int, std::vector<int>> ProcessSets() {
  const std::shared_ptr<SessionManager> manager = CurrentManager();
  return manager != nullptr ? manager->sets() : std::map<int, std::vector<int>>();
}

Result<std::shared_ptr<const PooledEvent>> WorkOnDevice(const void* memory, void* stream) {
  return TheDevices().Mark(memory, stream);
}

DeviceSupport FindDevices() { return TheDevices().Find(); }

// --- MPI ---

Result<bool> NeedsMpi(bool has_communicator, bool is_initialized) {
  SMDDP_ASSIGN_OR_RETURN(const Env env, ReadEnv());
  if (has_communicator || env.mpi == "on") return true;
  return env.mpi != "off" && (is_initialized || StartedByLauncher());
}

Status LoadMpi(const std::string& path) {
  if (g_mpi != &g_no_mpi) return Status::Ok();
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return Status(Reason::kBadState, dlerror());
  const auto make = reinterpret_cast<MakeMpiLibrary*>(dlsym(library, kMakeMpiLibrary));
  MpiLibrary* const mpi = make != nullptr ? make(kMpiLibraryVersion) : nullptr;
  if (mpi == nullptr) return Status(Reason::kBadState, path, " belongs to another version of smddp_tf.");
  g_mpi = mpi;
  return Status::Ok();
}

MpiLibrary& TheMpi() { return *g_mpi; }

}  // namespace smddp
