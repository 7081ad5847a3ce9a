// Every environment variable the library reads, in one list, with meaning and default. Nothing else calls getenv.
// docs/environment.md is generated from this list.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/process/log.h"
#include "core/status.h"

namespace smddp {

constexpr int64_t kAutoBytes = -1;  // the library chooses

// The values of the variables, read once when the session starts.
struct Env {
  std::string host_id;                      // SMDDP_HOST_ID
  bool autotune = false;                    // SMDDP_AUTOTUNE, HOROVOD_AUTOTUNE: only a warning
  int64_t cache_capacity = 1024;            // SMDDP_CACHE_CAPACITY, HOROVOD_CACHE_CAPACITY
  int64_t bucket_bytes = 0;                 // SMDDP_BUCKET_BYTES, HOROVOD_FUSION_THRESHOLD; kAutoBytes: auto
  int64_t chunk_bytes = 0;                  // SMDDP_CHUNK_BYTES; kAutoBytes: auto
  bool dynamic_process_sets = false;        // SMDDP_DYNAMIC_PROCESS_SETS, HOROVOD_DYNAMIC_PROCESS_SETS
  std::string cpu_isa;                      // SMDDP_CPU_ISA
  std::string gpu_stage;                    // SMDDP_GPU_STAGE: auto, nccl, nccl-node, host
  bool ranks_share_gpus = false;            // NCCL_MULTI_RANK_GPU_ENABLE, which is NCCL's
  std::string gradient_order;               // SMDDP_GRADIENT_ORDER: observed, listed
  LogLevel log_level = LogLevel::kWarning;  // SMDDP_LOG_LEVEL, HOROVOD_LOG_LEVEL
  bool log_timestamp = false;               // SMDDP_LOG_TIMESTAMP; HOROVOD_LOG_HIDE_TIME says the opposite
  double stall_warn_s = 0;                  // SMDDP_STALL_WARN_SECONDS, HOROVOD_STALL_CHECK_TIME_SECONDS
  double stall_error_s = 0;                 // SMDDP_STALL_ERROR_SECONDS, HOROVOD_STALL_SHUTDOWN_TIME_SECONDS
  double heartbeat_timeout_s = 0;           // SMDDP_HEARTBEAT_TIMEOUT
  double failure_grace_s = 0;               // SMDDP_FAILURE_GRACE
  double start_timeout_s = 0;               // SMDDP_START_TIMEOUT, HOROVOD_START_TIMEOUT
  std::string timeline;                     // SMDDP_TIMELINE, HOROVOD_TIMELINE: a file; "" for none or DYNAMIC
  bool timeline_cycles = false;             // SMDDP_TIMELINE_MARK_CYCLES, HOROVOD_TIMELINE_MARK_CYCLES
  std::string mpi;                          // SMDDP_MPI: auto, on, off
  std::string rail_algorithm;               // SMDDP_RAIL_ALGORITHM: auto, or a name
  double rail_latency_s = 0;                // SMDDP_RAIL_LATENCY_US; 0: measured
  double rail_bytes_per_s = 0;              // SMDDP_RAIL_BANDWIDTH_MBPS; 0: measured
  bool verify = false;                      // SMDDP_VERIFY
  bool legacy_keras = false;                // TF_USE_LEGACY_KERAS, which is TensorFlow's
};

// One row of the list.
struct EnvVariable {
  std::string name;
  std::string alias;  // the HOROVOD_* name that is honoured too; the SMDDP_* one wins when both are set. "" for none
  std::string default_value;
  bool for_developers;  // not meant for users
  std::string meaning;
};
const std::vector<EnvVariable>& EnvVariables();
// The names in this process's environment that begin with SMDDP_.
std::vector<std::string> NamesInEnvironment();
// Those of `names`, each beginning with SMDDP_, that are not read anywhere.
std::vector<std::string> UnknownNames(std::vector<std::string> names);

// Reads the environment. An invalid value is an error that names the variable, what was expected and what was
// received.
Result<Env> ReadEnv();
// SMDDP_GPU_LIBRARY and SMDDP_NCCL_LIBRARY, for which no session is needed.
struct DeviceLibraries {
  std::string gpu, nccl;
};
DeviceLibraries ReadDeviceLibraries();

// A switch that is read outside of a session, such as SMDDP_KERAS_COMPAT. Same errors.
Result<bool> ReadSwitch(const std::string& name);
// SMDDP_MONITOR; "": nothing is recorded.
std::string ReadMonitorFolder();

// True when a launcher (mpirun, mpiexec.hydra, srun with PMI or PMIx) started this process.
bool StartedByLauncher();
// The rank that the launcher assigned, or -1: for messages printed before there is a session.
int LauncherRank();
// May Open MPI use another messaging layer than ob1 (TCP and shared memory), by the user's choice (mpirun --mca pml,
// --mca mtl) or, without one, because the host `has_fabric`, a network for another?
bool MpiMayUseFabric(bool has_fabric);
// The launcher's name for this job, or "": ranks of one job have the same.
std::string LauncherJob();
// The network interfaces for MPI's messages that the user gave to the launcher ("eth0"), or "".
std::string LauncherNetwork();
// SMDDP_RUN_NOTES, where smddprun wants to hear how this rank ends (core/env/launcher.h); "" where it did not start it.
std::string LauncherNotes();
// Sets the variable `name` unless the user has set it. Only before MPI is initialised.
void SetDefault(const char* name, const char* value);

}  // namespace smddp
