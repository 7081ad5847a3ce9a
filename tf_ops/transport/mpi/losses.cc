#include "transport/mpi/survival.h"

#include <dlfcn.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <system_error>
#include <thread>

#include "core/env/env.h"
#include "transport/mpi/mpi_status.h"

namespace smddp {
namespace {

#ifdef MPI_ERR_PROC_FAILED
constexpr int kProcessFailed = MPI_ERR_PROC_FAILED, kRevoked = MPI_ERR_REVOKED;
#else
constexpr int kProcessFailed = -1, kRevoked = -1;
#endif

constexpr double kBeatsInSilence = 10;  // more than 3, as Open MPI requires
constexpr double kLooksPerBeat = 20;    // twice as many as Open MPI's own timer

struct Calls {
  int (*revoke)(MPI_Comm);
  int (*shrink)(MPI_Comm, MPI_Comm*);
  int (*agree)(MPI_Comm, int*);
  int (*acknowledge)(MPI_Comm);
  int (*failed)(MPI_Comm, MPI_Group*);

  template <class Call>
  void Find(const char* name, Call* call) {
    *call = reinterpret_cast<Call>(dlsym(RTLD_DEFAULT, name));
    complete &= *call != nullptr;
  }

  Calls() {
    Find("MPIX_Comm_revoke", &revoke);
    Find("MPIX_Comm_shrink", &shrink);
    Find("MPIX_Comm_agree", &agree);
    Find("MPIX_Comm_failure_ack", &acknowledge);
    Find("MPIX_Comm_failure_get_acked", &failed);
  }

  bool complete = kProcessFailed >= 0;
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

// InfiniBand, RoCE, EFA, Omni-Path; Slingshot.
bool HasFabric() {
  std::error_code error;
  for (const char* devices : {"/sys/class/infiniband", "/sys/class/cxi"}) {
    const std::filesystem::directory_iterator found(devices, error);
    if (!error && found != std::filesystem::directory_iterator()) return true;
  }
  return false;
}

}  // namespace

bool SurvivesLosses() {
  static const bool survives = LauncherSurvivesLosses() && Mpix().complete;
  return survives;
}

void AskMpiToReportLosses() {
  SurvivesLosses();  // reads the launcher's setting
  if (Mpix().complete && !MpiMayUseFabric(HasFabric())) SetDefault("OMPI_MCA_mpi_ft_enable", "1");
}

void AskMpiToDetectLosses(double silence_s) {
  SetDefault("OMPI_MCA_mpi_ft_detector", "1");
  SetDefault("OMPI_MCA_mpi_ft_detector_period", std::to_string(silence_s / kBeatsInSilence).c_str());
  SetDefault("OMPI_MCA_mpi_ft_detector_timeout", std::to_string(silence_s).c_str());
}

void ShowMpiLife(double silence_s) {
  [[maybe_unused]] static std::thread* const thread = new std::thread([silence_s] {
    for (int finalized = 0; !finalized; MPI_Finalized(&finalized)) {
      int found = 0;  // always false; the call only lets MPI make progress
      MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &found, MPI_STATUS_IGNORE);
      std::this_thread::sleep_for(std::chrono::duration<double>(silence_s / kBeatsInSilence / kLooksPerBeat));
    }
  });
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

Result<MPI_Comm> Survivors(MPI_Comm comm) {
  MPI_Comm survivors = MPI_COMM_NULL;
  SMDDP_MPI(Mpix().shrink(comm, &survivors));
  return survivors;
}

void Revoke(MPI_Comm comm) { Mpix().revoke(comm); }

Result<int> Agree(MPI_Comm comm, int mine, bool* lost) {
  const int code = Mpix().agree(comm, &mine);
  *lost = ClassOf(code) == kProcessFailed;
  if (!*lost) SMDDP_RETURN_IF_ERROR(MpiStatus(code, "MPIX_Comm_agree"));
  return mine;
}

}  // namespace smddp
