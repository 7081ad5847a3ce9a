// The session of all ranks and those of its process sets.
//
// A process set is a session with its own communicator, engine thread and shared memory, made like that of all ranks.
// So no other code treats sets specially; it knows only "my ranks". Every rank knows every set; ranks outside of a
// set have no session for it.
//
// Threads:   any. Add and Remove wait for the other ranks, Stop does not.
// Errors:    when the session of all ranks fails, those of the sets fail with it.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/env/env.h"
#include "runtime/api/session.h"
#include "runtime/session/engine_session.h"
#include "runtime/session/process_watchdog.h"
#include "runtime/session/set_proposal.h"
#include "transport/communicator.h"
#include "transport/mpi_library.h"
#include "transport/shm/tensor_memory.h"

namespace smddp {

class SessionManager {
 public:
  // All outlive it. `watchdog` is armed when a rank is lost, and watches the engine. `with_mpi`: the ranks are MPI's.
  static Result<std::shared_ptr<SessionManager>> Start(const StartOptions& options, PlanRegistry& plans,
                                                       ProcessWatchdog& watchdog, MpiLibrary& mpi, bool with_mpi);
  ~SessionManager() { Stop(); }
  // Ends all sessions. May be called twice. `at_exit`: as Engine::Stop.
  void Stop(bool at_exit = false);
  // Why the session of all ranks has failed.
  Status failure() const;

  // As the functions of these names in session.h.
  const std::shared_ptr<EngineSession>& session() const { return session_; }
  Result<std::shared_ptr<Session>> SessionOf(int process_set) const;
  Result<std::vector<int>> Add(const std::vector<ProcessSetSpec>& specs, bool at_start);
  Status AddOwn(const std::vector<int>& ranks, int number);
  Result<bool> Remove(int process_set);
  RankLists sets() const;

 private:
  struct Set {
    std::vector<int> ranks;
    std::unique_ptr<Communicator> communicator;  // outlives the session, whose transport makes calls with it
    std::shared_ptr<EngineSession> session;
  };

  SessionManager(const Env& env, const TensorMemory& tensors, PlanRegistry& plans, ProcessWatchdog& watchdog,
                 MpiLibrary& mpi)
      : env_(env), tensors_(tensors), plans_(plans), watchdog_(watchdog), mpi_(mpi) {}
  Status Open(const StartOptions& options, bool with_mpi);
  void OnFailure(const Status& why);
  Status MayChange(bool at_start) const;
  Result<SetProposal::Entry> EntryOf(const ProcessSetSpec& spec) const;
  Result<std::vector<std::string>> Ask(const std::string& mine, bool at_start);
  Result<std::vector<SetProposal>> Propose(const SetProposal& mine, bool at_start);
  Result<Set> Make(const NewSet& wanted);
  Status Keep(int number, Set set);
  int rank() const { return session_->topology().rank(); }

  const Env env_;
  const TensorMemory tensors_;
  PlanRegistry& plans_;
  ProcessWatchdog& watchdog_;
  MpiLibrary& mpi_;
  std::unique_ptr<Communicator> communicator_;  // null: this rank is alone; outlives the session
  std::shared_ptr<EngineSession> session_;
  RailChoice rail_;  // of the session of all ranks

  std::atomic<bool> stopped_{false};
  std::mutex changing_;       // one Add or Remove at a time
  mutable std::mutex mutex_;  // of what follows
  std::map<int, Set> sets_;   // by number
  int next_number_ = 1;
  Status failure_;
  Status ended_;  // an error: why no set can be made any more
};

}  // namespace smddp
