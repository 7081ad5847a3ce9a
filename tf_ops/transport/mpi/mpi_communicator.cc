#include "transport/mpi/mpi_communicator.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "transport/mpi/mpi_life.h"
#include "transport/mpi/mpi_transport.h"
#include "transport/mpi/waiting.h"

namespace smddp {
namespace {

// Open MPI over UCX, for example, has tags of 23 bits.
Result<TagSplit> TagsOfMpi() {
  int* largest = nullptr;
  int found = 0;
  SMDDP_MPI(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &largest, &found));
  constexpr int kLeast = (1 << 20) - 1;  // else there would be more than 512 communicators
  if (found && *largest >= kLeast) return TagSplit(*largest);
  return Status(Reason::kBadState, "This MPI allows message tags up to ", found ? *largest : 0, "; ", kLeast,
                " are needed. Choose another messaging layer, for example OMPI_MCA_pml=ob1 with Open MPI (mpirun --mca "
                "pml ob1).");
}

Result<MPI_Comm> CommunicatorOf(MPI_Comm parent, const std::vector<int>& ranks, const char* what,
                                const Deadline& deadline) {
  MPI_Group all, some;
  SMDDP_MPI(MPI_Comm_group(parent, &all));
  SMDDP_MPI(MPI_Group_incl(all, static_cast<int>(ranks.size()), ranks.data(), &some));
  MPI_Comm chosen = MPI_COMM_NULL;
  const StartWatchdog watchdog(deadline, what);
  SMDDP_MPI(MPI_Comm_create_group(parent, some, /*tag=*/7771, &chosen));
  MPI_Group_free(&all);
  MPI_Group_free(&some);
  return chosen;
}

Result<MPI_Comm> Select(MPI_Comm parent, const std::vector<int>& ranks, const Deadline& deadline) {
  int rank = 0, size = 0;
  SMDDP_MPI(MPI_Comm_rank(parent, &rank));
  SMDDP_MPI(MPI_Comm_size(parent, &size));
  for (int wanted : ranks) {
    if (wanted < 0 || wanted >= size || std::count(ranks.begin(), ranks.end(), wanted) > 1) {
      return Status(Reason::kBadArgument, "`comm` must list different ranks from 0 to ", size - 1, ". Received rank ",
                    wanted, ".");
    }
  }
  if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) {
    return Status(Reason::kBadArgument, "`comm` does not list this process: its rank in MPI_COMM_WORLD is ", rank,
                  ". Call hvd.init(comm=[...]) only on the listed ranks.");
  }
  return CommunicatorOf(parent, ranks, "init(comm=[...])", deadline);
}

// A duplicate of `parent`, for one session.
Result<MPI_Comm> Duplicate(MPI_Comm parent, const Deadline& deadline) {
  auto copy = std::make_unique<MPI_Comm>(MPI_COMM_NULL);
  MPI_Request request;
  SMDDP_MPI(MPI_Comm_idup(parent, copy.get(), &request));
  RollCall roll_call(parent, deadline, "init()");
  const Status all_arrived = roll_call.Await(&request);
  if (!all_arrived.ok()) {
    (void)copy.release();  // MPI still writes there
    return all_arrived;
  }
  SMDDP_RETURN_IF_ERROR(roll_call.End(*copy));
  return *copy;
}

// Receives and drops what is on its way from the other ranks: each sends an empty message last, and MPI keeps the order
// of messages from one rank where both could be received.
Result<bool> DrainMessages(MPI_Comm comm, int tag, int rank, int size, const Deadline& deadline) {
  std::vector<MPI_Request> sends(size, MPI_REQUEST_NULL);
  for (int to = 0; to < size; ++to) {
    if (to != rank) SMDDP_MPI(MPI_Isend(nullptr, 0, MPI_BYTE, to, tag, comm, &sends[to]));
  }
  std::vector<char> dropped;
  for (int last = 1; last < size;) {
    if (deadline.passed()) return false;
    int waiting = 0, bytes = 0;
    MPI_Message handle;
    MPI_Status status;
    SMDDP_MPI(MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &waiting, &handle, &status));
    if (!waiting) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      continue;
    }
    SMDDP_MPI(MPI_Get_count(&status, MPI_BYTE, &bytes));
    dropped.resize(static_cast<size_t>(bytes));
    SMDDP_MPI(MPI_Mrecv(dropped.data(), bytes, MPI_BYTE, &handle, MPI_STATUS_IGNORE));
    if (bytes == 0 && status.MPI_TAG == tag) ++last;
  }
  SMDDP_MPI(MPI_Waitall(size, sends.data(), MPI_STATUSES_IGNORE));
  return true;
}

constexpr int kMaxExchangedBytes = 1 << 30;  // of all ranks together

// The buffers of an exchange's steps. On the heap, because MPI may write to them after a timeout.
struct Gathering {
  std::string mine, all;
  int length = 0;
  std::vector<int> lengths, starts;
};

// At rank 0, and from there to all: MPI's allgathers connect every rank to every other.
Status Gather(MPI_Comm comm, Gathering* gathering, const Deadline& deadline) {
  RollCall roll_call(comm, deadline, "the start-up exchange");
  const int size = static_cast<int>(gathering->lengths.size());
  MPI_Request request;
  SMDDP_MPI(MPI_Igather(&gathering->length, 1, MPI_INT, gathering->lengths.data(), 1, MPI_INT, 0, comm, &request));
  SMDDP_RETURN_IF_ERROR(roll_call.Await(&request));
  SMDDP_MPI(MPI_Ibcast(gathering->lengths.data(), size, MPI_INT, 0, comm, &request));
  SMDDP_RETURN_IF_ERROR(roll_call.Await(&request));
  int total = 0;
  for (int rank = 0; rank < size; ++rank) {
    const int length = gathering->lengths[rank];
    if (length < 0 || length > kMaxExchangedBytes - total) {
      return OtherVersion("Rank ", rank, " wants to send ", length, " bytes in the start-up exchange");
    }
    gathering->starts[rank] = total;
    total += length;
  }
  gathering->all.resize(total);
  SMDDP_MPI(MPI_Igatherv(gathering->mine.data(), gathering->length, MPI_BYTE, gathering->all.data(),
                         gathering->lengths.data(), gathering->starts.data(), MPI_BYTE, 0, comm, &request));
  SMDDP_RETURN_IF_ERROR(roll_call.Await(&request));
  SMDDP_MPI(MPI_Ibcast(gathering->all.data(), total, MPI_BYTE, 0, comm, &request));
  SMDDP_RETURN_IF_ERROR(roll_call.Await(&request));
  return roll_call.End(comm);
}

}  // namespace

Result<std::unique_ptr<Communicator>> MpiCommunicator::Open(const void* communicator, const std::vector<int>& ranks,
                                                            const Deadline& deadline) {
  SMDDP_RETURN_IF_ERROR(InitializeMpi(deadline));
  const MPI_Comm parent = communicator != nullptr ? *static_cast<const MPI_Comm*>(communicator) : MPI_COMM_WORLD;
  MPI_Comm chosen = parent;
  if (!ranks.empty()) {
    SMDDP_ASSIGN_OR_RETURN(chosen, Select(parent, ranks, deadline));
  }
  SMDDP_ASSIGN_OR_RETURN(const MPI_Comm comm, Duplicate(chosen, deadline));
  if (chosen != parent) MPI_Comm_free(&chosen);
  auto opened = std::make_unique<MpiCommunicator>();
  SMDDP_RETURN_IF_ERROR(opened->Prepare(comm, deadline));
  ReturnToMpi();
  return std::unique_ptr<Communicator>(std::move(opened));
}

Status MpiCommunicator::Prepare(MPI_Comm comm, const Deadline& deadline) {
  SMDDP_MPI(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
  SMDDP_MPI(MPI_Comm_rank(comm, &rank_));
  SMDDP_MPI(MPI_Comm_size(comm, &size_));
  SMDDP_ASSIGN_OR_RETURN(tags_, TagsOfMpi());
  comms_ = {comm};
  while (static_cast<int>(comms_.size()) < tags_.communicators()) {
    SMDDP_ASSIGN_OR_RETURN(const MPI_Comm next, Duplicate(comm, deadline));
    comms_.push_back(next);
  }
  return Status::Ok();
}

Result<std::unique_ptr<Communicator>> MpiCommunicator::Subset(const std::vector<int>& ranks, int, const char* what,
                                                              const Deadline& deadline) const {
  SMDDP_ASSIGN_OR_RETURN(const MPI_Comm comm, CommunicatorOf(comms_[0], ranks, what, deadline));
  auto subset = std::make_unique<MpiCommunicator>();
  SMDDP_RETURN_IF_ERROR(subset->Prepare(comm, deadline));
  return std::unique_ptr<Communicator>(std::move(subset));
}

Result<std::vector<int>> MpiCommunicator::RanksOf(const void* communicator) const {
  const MPI_Comm comm = *static_cast<const MPI_Comm*>(communicator);
  if (comm == MPI_COMM_NULL) return std::vector<int>();
  MPI_Group theirs, ours;
  int size = 0;
  SMDDP_MPI(MPI_Comm_group(comm, &theirs));
  SMDDP_MPI(MPI_Comm_group(comms_[0], &ours));
  SMDDP_MPI(MPI_Group_size(theirs, &size));
  std::vector<int> places(size), ranks(size);
  for (int place = 0; place < size; ++place) places[place] = place;
  SMDDP_MPI(MPI_Group_translate_ranks(theirs, size, places.data(), ours, ranks.data()));
  MPI_Group_free(&theirs);
  MPI_Group_free(&ours);
  if (std::count(ranks.begin(), ranks.end(), MPI_UNDEFINED) == 0) return ranks;
  return Status(Reason::kBadArgument,
                "A process set's communicator has members that do not take part in hvd.init(). Expected: one whose "
                "members are among the ranks of hvd.init().");
}

Result<bool> MpiCommunicator::Free(const Deadline& deadline) {
  const int tag = tags_.MpiTagOf(TagSplit::kControl);
  for (MPI_Comm& comm : comms_) {
    SMDDP_ASSIGN_OR_RETURN(const bool drained, DrainMessages(comm, tag, rank_, size_, deadline));
    if (!drained) return false;
    SMDDP_MPI(MPI_Comm_free(&comm));
  }
  return true;
}

Result<std::vector<std::string>> MpiCommunicator::Exchange(const std::string& mine, const Deadline& deadline) {
  auto gathering = std::make_unique<Gathering>();
  gathering->mine = mine;
  gathering->length = static_cast<int>(mine.size());
  gathering->lengths.resize(size_);
  gathering->starts.resize(size_);
  const Status gathered = Gather(comms_[0], gathering.get(), deadline);
  if (!gathered.ok()) {
    (void)gathering.release();
    return gathered;
  }
  std::vector<std::string> texts;
  for (int rank = 0; rank < size_; ++rank) {
    texts.push_back(gathering->all.substr(gathering->starts[rank], gathering->lengths[rank]));
  }
  return texts;
}

std::unique_ptr<Transport> MpiCommunicator::NewTransport() { return std::make_unique<MpiTransport>(comms_, tags_); }

}  // namespace smddp
