#include "transport/mpi/losses.h"

#include <dlfcn.h>

#include "core/env/env.h"

namespace smddp {
namespace {

#ifdef MPI_ERR_PROC_FAILED
constexpr int kProcessFailed = MPI_ERR_PROC_FAILED, kRevoked = MPI_ERR_REVOKED;
#else
constexpr int kProcessFailed = -1, kRevoked = -1;
#endif

struct Calls {
  using Acknowledge = int (*)(MPI_Comm);
  using Failed = int (*)(MPI_Comm, MPI_Group*);
  const Acknowledge acknowledge = reinterpret_cast<Acknowledge>(dlsym(RTLD_DEFAULT, "MPIX_Comm_failure_ack"));
  const Failed failed = reinterpret_cast<Failed>(dlsym(RTLD_DEFAULT, "MPIX_Comm_failure_get_acked"));
  const bool complete = kProcessFailed >= 0 && acknowledge != nullptr && failed != nullptr;
};

const Calls& Mpix() {
  static const Calls calls;
  return calls;
}

int ClassOf(int code) {
  int error_class = MPI_SUCCESS;
  if (code != MPI_SUCCESS) MPI_Error_class(code, &error_class);
  return error_class;
}

}  // namespace

void AskMpiToReportLosses() {
  if (Mpix().complete) SetDefault("OMPI_MCA_mpi_ft_enable", "1");
}

bool MeansLoss(int code) {
  const int error_class = Mpix().complete ? ClassOf(code) : MPI_SUCCESS;
  return error_class != MPI_SUCCESS && (error_class == kProcessFailed || error_class == kRevoked);
}

std::vector<int> TakeLosses(MPI_Comm comm) {
  MPI_Group members, failed;
  int count = 0;
  if (Mpix().acknowledge(comm) != MPI_SUCCESS || Mpix().failed(comm, &failed) != MPI_SUCCESS) return {};
  MPI_Comm_group(comm, &members);
  MPI_Group_size(failed, &count);
  std::vector<int> places(count), ranks(count);
  for (int place = 0; place < count; ++place) places[place] = place;
  MPI_Group_translate_ranks(failed, count, places.data(), members, ranks.data());
  MPI_Group_free(&failed);
  MPI_Group_free(&members);
  return ranks;
}

}  // namespace smddp
