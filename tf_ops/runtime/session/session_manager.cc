#include "runtime/session/session_manager.h"

#include <algorithm>
#include <future>
#include <numeric>

#include "core/env/launcher.h"
#include "core/process/log.h"
#include "runtime/bootstrap/bootstrap.h"
#include "runtime/session/session_log.h"
#include "transport/tcp/tcp_communicator.h"

namespace smddp {
namespace {

// The watchdog's limit for an engine stuck in a call: this much longer than the heartbeat timeout of its peers.
constexpr double kEngineMarginSeconds = 5;
// The time limit of the other members of a removed process set, which remove it at the same time.
constexpr double kFreeSeconds = 5;
// The time limit of the program's exit when a rank is lost.
constexpr double kExitSeconds = 5;

std::string Short(double seconds) {
  std::string text = std::to_string(seconds);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

Status CheckAlone(const StartOptions& options) {
  for (int rank : options.ranks) {
    if (rank == 0) continue;
    return Status(Reason::kBadArgument, "`comm` lists rank ", rank,
                  ", but this program runs alone. Start it with mpirun -np N.");
  }
  return Status::Ok();
}

// `others` null: this rank is alone.
Exchange ExchangeOver(Communicator* others, const Deadline& deadline) {
  return {[others, deadline](const std::string& mine) {
    return others != nullptr ? others->Exchange(mine, deadline) : Result<std::vector<std::string>>({mine});
  }};
}

}  // namespace

Result<std::shared_ptr<SessionManager>> SessionManager::Start(const StartOptions& options, PlanRegistry& plans,
                                                              ProcessWatchdog& watchdog, MpiLibrary& mpi,
                                                              bool with_mpi) {
  SMDDP_ASSIGN_OR_RETURN(Env env, ReadEnv());
  env.dynamic_process_sets |= options.dynamic_process_sets;
  const TensorMemory tensors = {{options.tensor_memory, options.tensor_memory_bytes}, options.tensor_memory_file};
  std::shared_ptr<SessionManager> manager(new SessionManager(env, tensors, plans, watchdog, mpi));
  SMDDP_RETURN_IF_ERROR(manager->Open(options, with_mpi));
  return manager;
}

Status SessionManager::Open(const StartOptions& options, bool with_mpi) {
  SetLog(env_.log_level, LauncherRank(), env_.log_timestamp);
  const Deadline deadline = Deadline::After(env_.start_timeout_s);
  if (!options.world.addresses.empty()) {
    SMDDP_ASSIGN_OR_RETURN(communicator_, TcpCommunicator::Open(options.world));
  } else if (with_mpi) {
    SMDDP_ASSIGN_OR_RETURN(communicator_, mpi_.Open(options.communicator, options.ranks, deadline));
  } else {
    SMDDP_RETURN_IF_ERROR(CheckAlone(options));
  }
  Communicator* const others = communicator_.get();
  SMDDP_ASSIGN_OR_RETURN(auto parts,
                         Bootstrap(others != nullptr ? others->rank() : 0, env_, ExchangeOver(others, deadline),
                                   others != nullptr ? others->NewTransport() : nullptr, deadline,
                                   /*known_rail=*/nullptr, options.versions, tensors_));
  const Topology& topology = parts->fabric().topology;
  SetLog(env_.log_level, topology.rank(), env_.log_timestamp);
  rail_ = parts->fabric().rail;
  LogStart(topology, env_, parts->fabric().compute.name(), options);
  session_ =
      std::make_shared<EngineSession>(std::move(parts), env_, plans_, [this](const Status& why) { OnFailure(why); });
  if (session_->topology().size() > 1 && env_.heartbeat_timeout_s > 0) {
    watchdog_.Watch([session = session_] { return session->turns(); }, env_.heartbeat_timeout_s + kEngineMarginSeconds);
    if (StartedByLauncher()) watchdog_.WatchLauncher(env_.failure_grace_s);
  }
  if (env_.timeline.empty()) return Status::Ok();
  const Status started = session_->diagnostics().StartTimeline(env_.timeline, env_.timeline_cycles);
  if (!started.ok())
    Log(LogLevel::kWarning, "SMDDP_TIMELINE: ", started.message(), " The job continues without a timeline.");
  return Status::Ok();
}

void SessionManager::Stop(bool at_exit) {
  if (stopped_.exchange(true)) return;
  std::map<int, Set> sets;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (ended_.ok()) ended_ = NotInitialized(/*was_ended=*/true);
    std::swap(sets, sets_);
  }
  for (auto& [number, set] : sets) {
    if (set.session != nullptr) set.session->Stop();
  }
  if (session_ != nullptr) session_->Stop(at_exit);
  watchdog_.Watch(nullptr, 0);
  watchdog_.Disarm();
  if (at_exit && mpi_.is_abandoned()) watchdog_.Arm(kExitSeconds, /*why=*/"");  // its error has been reported
}

Status SessionManager::failure() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return failure_;
}

void SessionManager::OnFailure(const Status& why) {
  std::lock_guard<std::mutex> lock(mutex_);
  failure_ = why;
  // The rank that raised has written its own note already.
  TellLauncher(why.reason() == Reason::kPeerLost ? EndNote::kBecauseOfLost : EndNote::kBecauseOfOther, why.message());
  // A rank that does not reach a collective does not reach MPI_Finalize either.
  if (why.reason() == Reason::kTimedOut || why.reason() == Reason::kPeerLost) mpi_.Abandon();
  if (why.reason() == Reason::kPeerLost && env_.failure_grace_s > 0) {
    watchdog_.Arm(env_.failure_grace_s, "The program did not end within " + Short(env_.failure_grace_s) +
                                            " s of the loss of a rank (SMDDP_FAILURE_GRACE); it ends now.");
  }
  const Status with_it(why.reason(), "The session of all ranks failed, and this process set with it: " + why.message());
  if (ended_.ok()) ended_ = with_it;
  for (auto& [number, set] : sets_) {
    if (set.session != nullptr) set.session->Fail(with_it);
  }
}

RankLists SessionManager::sets() const {
  RankLists lists;
  lists[0] = session_->topology().all().world_ranks();
  std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [number, set] : sets_) {
    if (number < kFirstOwnSet) lists[number] = set.ranks;
  }
  return lists;
}

Result<std::shared_ptr<Session>> SessionManager::SessionOf(int process_set) const {
  if (process_set == 0) return std::shared_ptr<Session>(session_);
  std::lock_guard<std::mutex> lock(mutex_);
  const auto at = sets_.find(process_set);
  if (at == sets_.end()) {
    return Status(Reason::kBadArgument, "There is no process set ", process_set,
                  " (any more). hvd.init(process_sets=[...]) and hvd.add_process_set make sets; hvd.remove_process_set "
                  "ends them.");
  }
  if (at->second.session != nullptr) return std::shared_ptr<Session>(at->second.session);
  return Status(Reason::kBadArgument, "Rank ", rank(), " is not a member of the provided process set: process set ",
                process_set, " has the ranks ", RanksText(at->second.ranks), ".");
}

// --- Adding and removing sets ---

Status SessionManager::MayChange(bool at_start) const {
  if (!at_start && !env_.dynamic_process_sets) {
    return Status(Reason::kBadArgument,
                  "Process sets may not be added or removed now. Expected: hvd.init(process_sets=\"dynamic\"), or "
                  "HOROVOD_DYNAMIC_PROCESS_SETS=1 on all ranks.");
  }
  if (mpi_.has_thread_multiple()) return Status::Ok();
  return Status(Reason::kBadState,
                "Process sets need an MPI library with MPI_THREAD_MULTIPLE, because every set has its own thread.");
}

Result<SetProposal::Entry> SessionManager::EntryOf(const ProcessSetSpec& spec) const {
  SetProposal::Entry entry{spec.ranks, spec.communicator != nullptr};
  if (!entry.own) return entry;
  if (communicator_ == nullptr) {
    return Status(Reason::kBadArgument, "This program runs without MPI, so it has no communicators.");
  }
  SMDDP_ASSIGN_OR_RETURN(entry.ranks, communicator_->RanksOf(spec.communicator));
  return entry;
}

// The texts of all ranks. A named request like any other: the stall watch names missing ranks.
Result<std::vector<std::string>> SessionManager::Ask(const std::string& mine, bool at_start) {
  const char* const name = at_start ? "hvd.init" : "hvd.add_process_set or hvd.remove_process_set";
  Request request(RequestKind::kAllgather, name, {{DType::kUInt8, {static_cast<int64_t>(mine.size())}, mine.data()}});
  std::string all;
  std::vector<int64_t> lengths;
  request.allocate = [&](int, const std::vector<int64_t>& bytes_of_rank) -> Result<void*> {
    lengths = bytes_of_rank;
    all.resize(std::accumulate(lengths.begin(), lengths.end(), size_t{0}));
    return static_cast<void*>(all.data());
  };
  const auto done = std::make_shared<std::promise<Status>>();
  session_->Submit(std::move(request), [done](const Status& status) { done->set_value(status); });
  SMDDP_RETURN_IF_ERROR(done->get_future().get());
  std::vector<std::string> texts;
  size_t at = 0;
  for (int64_t length : lengths) {
    texts.push_back(all.substr(at, static_cast<size_t>(length)));
    at += static_cast<size_t>(length);
  }
  return texts;
}

Result<std::vector<SetProposal>> SessionManager::Propose(const SetProposal& mine, bool at_start) {
  SMDDP_ASSIGN_OR_RETURN(const auto texts, Ask(Encode(mine), at_start));
  std::vector<SetProposal> by_rank;
  for (const std::string& text : texts) {
    SMDDP_ASSIGN_OR_RETURN(SetProposal proposal, DecodeProposal(text, static_cast<int>(by_rank.size())));
    by_rank.push_back(std::move(proposal));
  }
  return by_rank;
}

Result<SessionManager::Set> SessionManager::Make(const NewSet& wanted) {
  Set set;
  set.ranks = wanted.ranks;
  if (std::count(set.ranks.begin(), set.ranks.end(), rank()) == 0) return set;
  const Deadline deadline = Deadline::After(env_.start_timeout_s);
  SMDDP_ASSIGN_OR_RETURN(set.communicator,
                         communicator_->Subset(set.ranks, wanted.number, "hvd.add_process_set()", deadline));
  Exchange exchange = ExchangeOver(set.communicator.get(), deadline);
  exchange.caller = "Process set " + std::to_string(wanted.number);
  exchange.global_ranks = set.ranks;
  SMDDP_ASSIGN_OR_RETURN(auto parts,
                         Bootstrap(set.communicator->rank(), env_, exchange, set.communicator->NewTransport(), deadline,
                                   &rail_, /*versions=*/{}, tensors_));
  set.session = std::make_shared<EngineSession>(std::move(parts), env_, plans_);
  return set;
}

Status SessionManager::Keep(int number, Set set) {
  std::lock_guard<std::mutex> lock(mutex_);
  SMDDP_RETURN_IF_ERROR(ended_);
  if (number < kFirstOwnSet) next_number_ = std::max(next_number_, number + 1);
  Log(LogLevel::kDebug, "process set ", number, " begins: ranks ", RanksText(set.ranks));
  sets_[number] = std::move(set);
  return Status::Ok();
}

Result<std::vector<int>> SessionManager::Add(const std::vector<ProcessSetSpec>& specs, bool at_start) {
  if (specs.empty() && session_->topology().size() == 1) return std::vector<int>();
  if (!specs.empty()) SMDDP_RETURN_IF_ERROR(MayChange(at_start));
  std::lock_guard<std::mutex> lock(changing_);
  SetProposal mine;
  mine.next_number = next_number_;
  for (const ProcessSetSpec& spec : specs) {
    SMDDP_ASSIGN_OR_RETURN(SetProposal::Entry entry, EntryOf(spec));
    mine.entries.push_back(std::move(entry));
  }
  SMDDP_ASSIGN_OR_RETURN(const auto by_rank, Propose(mine, at_start));
  SMDDP_ASSIGN_OR_RETURN(const auto wanted, SetsToMake(by_rank, sets()));
  if (wanted.empty()) return std::vector<int>(specs.size(), 0);

  // All sets are tried, because the members of the next one wait in MPI for this rank.
  std::vector<Set> made;
  std::string error;
  for (const NewSet& set : wanted) {
    Result<Set> one = Make(set);
    if (!one.ok() && error.empty()) error = one.status().message();
    made.push_back(one.ok() ? std::move(*one) : Set());
  }
  SMDDP_ASSIGN_OR_RETURN(const auto errors, Ask(error, at_start));  // afterwards every member has its set
  for (size_t other = 0; other < errors.size(); ++other) {
    if (errors[other].empty()) continue;
    return Status(Reason::kNoResources, "A process set could not be made on rank ", other, ": ", errors[other]);
  }

  std::vector<int> numbers(specs.size(), 0);
  for (size_t i = 0; i < wanted.size(); ++i) {
    const size_t position = wanted[i].position;
    const bool only_one = std::count_if(wanted.begin(), wanted.end(),
                                        [&](const NewSet& other) { return other.position == position; }) == 1;
    if (made[i].session != nullptr || only_one) numbers[position] = wanted[i].number;
    SMDDP_RETURN_IF_ERROR(Keep(wanted[i].number, std::move(made[i])));
  }
  return numbers;
}

Status SessionManager::AddOwn(const std::vector<int>& ranks, int number) {
  SMDDP_RETURN_IF_ERROR(MayChange(/*at_start=*/true));
  std::lock_guard<std::mutex> lock(changing_);
  SMDDP_ASSIGN_OR_RETURN(Set made, Make({number, 0, ranks}));
  return Keep(number, std::move(made));
}

Result<bool> SessionManager::Remove(int process_set) {
  if (process_set <= 0) return false;
  SMDDP_RETURN_IF_ERROR(MayChange(/*at_start=*/false));
  std::lock_guard<std::mutex> changing(changing_);
  SetProposal mine;
  mine.removes = process_set;
  SMDDP_ASSIGN_OR_RETURN(const auto by_rank, Propose(mine, /*at_start=*/false));
  SMDDP_RETURN_IF_ERROR(CheckSameKind(by_rank));
  Set leaving;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto at = sets_.find(process_set);
    if (at == sets_.end()) return false;
    leaving = std::move(at->second);
    sets_.erase(at);
  }
  if (leaving.session != nullptr) leaving.session->Stop();
  SMDDP_RETURN_IF_ERROR(Ask("", /*at_start=*/false).status());  // afterwards no member's engine reads any more
  if (leaving.session != nullptr) {
    SMDDP_ASSIGN_OR_RETURN(const bool freed, leaving.communicator->Free(Deadline::After(kFreeSeconds)));
    if (!freed) Log(LogLevel::kDebug, "the communicator of the process set is kept: a rank does not answer");
  }
  Log(LogLevel::kDebug, "process set ", process_set, " has been removed");
  return true;
}

}  // namespace smddp
