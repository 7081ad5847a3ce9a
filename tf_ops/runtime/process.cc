// The process's one session, and the only global state of the engine.
#include <cstdlib>
#include <mutex>

#include "core/log.h"
#include "runtime/bootstrap.h"
#include "runtime/engine_session.h"
#include "runtime/session.h"
#include "transport/mpi/mpi_world.h"

namespace smddp {
namespace {

// The communicator outlives the session: its transport makes the engine's calls.
struct Running {
  std::unique_ptr<MpiWorld> mpi;
  std::shared_ptr<EngineSession> session;
};

std::mutex g_mutex;
Running g_running;
PlanRegistry g_plans;

bool WantsMpi(const Env& env, const StartOptions& options) {
  if (options.has_communicator || env.mpi == "on") return true;
  if (env.mpi == "off") return false;
  return MpiIsInitialized() || StartedByLauncher();
}

Result<std::vector<std::string>> Alone(const std::string& mine) { return std::vector<std::string>{mine}; }

Status CheckAlone(const StartOptions& options) {
  for (int rank : options.ranks) {
    if (rank == 0) continue;
    return Status(Code::kInvalidArgument, "`comm` lists rank " + std::to_string(rank) +
                                              ", but this program runs alone. Start it with mpirun -np N.");
  }
  return Status::Ok();
}

Result<Running> Start(const StartOptions& options) {
  SMDDP_ASSIGN_OR_RETURN(const Env env, ReadEnv());
  const LogLevel level = LogLevelFromName(env.log_level, LogLevel::kWarning);
  SetLog(level, LauncherRank());
  const Deadline deadline = Deadline::After(env.start_timeout_s);
  Running running;
  std::unique_ptr<FabricParts> parts;
  if (!WantsMpi(env, options)) {
    SMDDP_RETURN_IF_ERROR(CheckAlone(options));
    SMDDP_ASSIGN_OR_RETURN(parts, Bootstrap(0, env, Alone, nullptr, deadline));
  } else {
    SMDDP_ASSIGN_OR_RETURN(running.mpi, MpiWorld::Open(options.communicator, options.ranks, deadline));
    MpiWorld& mpi = *running.mpi;
    const Exchange exchange = [&mpi, &deadline](const std::string& mine) { return mpi.Exchange(mine, deadline); };
    SMDDP_ASSIGN_OR_RETURN(parts, Bootstrap(mpi.rank(), env, exchange, mpi.NewTransport(), deadline));
  }
  SetLog(level, parts->fabric().topology.rank());
  running.session = std::make_shared<EngineSession>(std::move(parts), env, g_plans);
  return running;
}

}  // namespace

Status StartSession(const StartOptions& options) {
  std::lock_guard<std::mutex> lock(g_mutex);
  if (g_running.session != nullptr) return Status::Ok();
  SMDDP_ASSIGN_OR_RETURN(g_running, Start(options));
  // Registered after MPI's own, so it runs before it: the engine must be quiet when MPI is finalised.
  static const int registered = std::atexit([] { (void)StopSession(); });
  (void)registered;
  return Status::Ok();
}

Status StopSession() {
  Running leaving;
  {
    std::lock_guard<std::mutex> lock(g_mutex);
    std::swap(leaving, g_running);
  }
  if (leaving.session != nullptr) leaving.session->Stop();
  leaving.session.reset();
  return Status::Ok();
}

std::shared_ptr<Session> CurrentSession() {
  std::lock_guard<std::mutex> lock(g_mutex);
  return g_running.session;
}

bool MpiInitialized() { return MpiIsInitialized(); }
bool MpiThreadMultiple() { return MpiHasThreadMultiple(); }
const char* MpiLibraryVersion() { return MpiVersionText(); }

Status NotInitialized() {
  return Status(Code::kFailedPrecondition, "Horovod has not been initialized; use hvd.init().");
}

}  // namespace smddp
