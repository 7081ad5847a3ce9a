#include "core/env/env.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <iterator>

namespace smddp {
namespace {

constexpr bool kForUsers = false, kForDevelopers = true;

const char* Get(const std::string& name) {
  const char* value = name.empty() ? nullptr : std::getenv(name.c_str());
  return value != nullptr && *value != '\0' ? value : nullptr;
}

// The first of them that is set, or null.
const char* FirstOf(std::initializer_list<const char*> names) {
  const auto set = std::find_if(names.begin(), names.end(), [](const char* name) { return Get(name) != nullptr; });
  return set != names.end() ? Get(*set) : nullptr;
}

std::string TextOf(const char* text) { return text != nullptr ? text : ""; }

// The variable's text, and under which name it was found (for the error message).
struct Found {
  std::string name;
  std::string text;
};

Found Find(const std::string& name) {
  for (const EnvVariable& variable : EnvVariables()) {
    if (variable.name != name) continue;
    if (const char* text = Get(variable.name)) return {variable.name, text};
    if (const char* text = Get(variable.alias)) return {variable.alias, text};
    return {name, variable.default_value};
  }
  return {name, ""};
}

Status Unreadable(const Found& found, const char* expected) {
  return Status(Reason::kBadArgument, "Environment variable ", found.name, " must be ", expected, ". Received: '",
                found.text, "'. Correct or unset it on every rank.");
}

// Digits with an optional KB, MB or GB (powers of 1024), or auto.
Status ReadBytes(const std::string& name, int64_t least, int64_t* value) {
  const Found found = Find(name);
  *value = kAutoBytes;
  if (found.text == "auto") return Status::Ok();
  char* end = nullptr;
  errno = 0;
  const long long number = std::strtoll(found.text.c_str(), &end, 10);
  int64_t unit = 1;
  if (std::strcmp(end, "KB") == 0) unit = 1 << 10;
  if (std::strcmp(end, "MB") == 0) unit = 1 << 20;
  if (std::strcmp(end, "GB") == 0) unit = 1 << 30;
  const bool clean = end != found.text.c_str() && (*end == '\0' || unit > 1) && errno == 0;
  if (!clean || number < 0 || number > (int64_t{1} << 40) / unit || number * unit < least) {
    return Unreadable(found, ("a number of bytes of at least " + std::to_string(least)).c_str());
  }
  *value = number * unit;
  return Status::Ok();
}

Status ReadCount(const std::string& name, int64_t* value) {
  const Found found = Find(name);
  char* end = nullptr;
  *value = std::strtoll(found.text.c_str(), &end, 10);
  if (end != found.text.c_str() && *end == '\0' && *value >= 0 && *value <= 1 << 24) return Status::Ok();
  return Unreadable(found, "a number from 0 to 16777216");
}

// A number without anything behind it; NaN where there is none.
double NumberOf(const Found& found) {
  char* end = nullptr;
  const double number = std::strtod(found.text.c_str(), &end);
  return end != found.text.c_str() && *end == '\0' ? number : std::nan("");
}

Status ReadSeconds(const std::string& name, double* value) {
  const Found found = Find(name);
  *value = NumberOf(found);
  if (*value >= 0 && *value <= 1e9) return Status::Ok();
  return Unreadable(found, "a number of seconds, 0 or more");
}

// A positive number, or auto, which gives 0.
Status ReadRate(const std::string& name, double* value) {
  const Found found = Find(name);
  *value = found.text == "auto" ? 0 : NumberOf(found);
  if (found.text == "auto" || (*value > 0 && *value <= 1e9)) return Status::Ok();
  return Unreadable(found, "a positive number or auto");
}

Status ReadSwitch(const std::string& name, bool* value) {
  const Found found = Find(name);
  *value = found.text == "1" || found.text == "true";
  if (*value || found.text == "0" || found.text == "false") return Status::Ok();
  return Unreadable(found, "1, true, 0 or false");
}

Status ReadChoice(const std::string& name, const std::vector<std::string>& choices, std::string* value) {
  const Found found = Find(name);
  *value = found.text;
  std::string expected;
  for (const std::string& choice : choices) {
    if (choice == found.text) return Status::Ok();
    expected += (expected.empty() ? "" : &choice == &choices.back() ? " or " : ", ") + choice;
  }
  return Unreadable(found, expected.c_str());
}

Status ReadLogLevel(LogLevel* level) {
  const Found found = Find("SMDDP_LOG_LEVEL");
  if (LogLevelFromName(found.text, level)) return Status::Ok();
  return Unreadable(found, "trace, debug, info, warning, error, fatal or off");
}

Status ReadLogTimestamp(bool* wanted) {
  SMDDP_RETURN_IF_ERROR(ReadSwitch("SMDDP_LOG_TIMESTAMP", wanted));
  if (Find("SMDDP_LOG_TIMESTAMP").name == "HOROVOD_LOG_HIDE_TIME") *wanted = !*wanted;
  return Status::Ok();
}

bool IsTrue(const char* text) {
  return text != nullptr && std::strcmp(text, "0") != 0 && std::strcmp(text, "false") != 0;
}

// Names with the prefix SMDDP_ that are read elsewhere: by the build, smddprun, tests, benchmarks. A name that ends
// with an underscore stands for all names with that prefix.
constexpr const char* kOtherNames[] = {
    "SMDDP_AG_",  // of AWS's library, whose initials these are
    "SMDDP_AS",         "SMDDP_BENCH_",         "SMDDP_BUILD_DIR", "SMDDP_BUILD_TARGETS",
    "SMDDP_BUILD_TYPE", "SMDDP_CUDA",           "SMDDP_CUDA_HOME", "SMDDP_FAULTS_JOB",
    "SMDDP_LAB",        "SMDDP_MPIRUN",         "SMDDP_MPI_HOME",  "SMDDP_RUN_",
    "SMDDP_SANITIZE",   "SMDDP_TENSORFLOW_DIR", "SMDDP_TEST_",
};

bool IsKnown(const std::string& name) {
  const auto is_read = [&](const EnvVariable& variable) { return variable.name == name; };
  const auto stands_for = [&](const std::string& other) {
    return other == name || (other.back() == '_' && name.rfind(other, 0) == 0);
  };
  return std::any_of(EnvVariables().begin(), EnvVariables().end(), is_read) ||
         std::any_of(std::begin(kOtherNames), std::end(kOtherNames), stands_for);
}

}  // namespace

const std::vector<EnvVariable>& EnvVariables() {
  static const std::vector<EnvVariable> variables = {
      {"SMDDP_ALL_PROGRESS_BARS", "", "0", kForUsers,
       "0: in `fit`, `evaluate` and `predict` that all ranks run together, Keras prints progress on rank 0 only, "
       "whatever `verbose` says elsewhere. 1: on every rank that asks for it."},
      {"SMDDP_AUTOTUNE", "HOROVOD_AUTOTUNE", "0", kForUsers,
       "1: a warning that nothing is tuned while a job runs (docs/performance.md). SMDDP_BUCKET_BYTES sets what "
       "matters."},
      {"SMDDP_BUCKET_BYTES", "HOROVOD_FUSION_THRESHOLD", "auto", kForUsers,
       "Size at which a fusion bucket of gradients is closed, in bytes as sent (KB, MB, GB are accepted; 1KB is 1,024 "
       "bytes). 0 puts every tensor into its own bucket. auto: a sixteenth of the gradients (on one node a quarter), "
       "at most 25MB up to 8 nodes and in proportion to the nodes above (docs/algorithms.md). Allreduces by name that "
       "become ready while others travel are reduced together up to this size (auto: that most). Must agree on all "
       "ranks."},
      {"SMDDP_CACHE_CAPACITY", "HOROVOD_CACHE_CAPACITY", "1024", kForUsers,
       "How many requests by name that recur a coordinator numbers; their announcements and answers then take a few "
       "bytes each. 0: none."},
      {"SMDDP_CHUNK_BYTES", "", "auto", kForDevelopers,
       "Size of the chunks in which a bucket is sent through shared memory. Smaller chunks stay in cache, larger ones "
       "need fewer messages. At least 4096; auto: 256KB up to 8 ranks, 32KB for each rank above, at most 4MB, less "
       "where shared memory is small. Must agree on all ranks."},
      {"SMDDP_COMMIT_DIR", "", "", kForDevelopers,
       "Folder, or URL of fsspec (s3://...), to which every state of hvd.elastic writes its commits, and from which it "
       "continues when the job is restarted; the same one on all hosts (docs/elastic.md). smddprun --elastic sets it. "
       "Empty: none."},
      {"SMDDP_CPU_ISA", "", "auto", kForDevelopers,
       "Instruction set of the CPU kernels: auto, generic, avx2 or avx512. If the CPU lacks it, the best available one "
       "is used."},
      {"SMDDP_DATA_AUTOTUNE", "", "0", kForUsers,
       "0: `fit`, `evaluate` and `predict` of Keras 3 on several ranks, and `hvd.data.shard`, switch the autotuning of "
       "tf.data off for datasets that do not set `options.autotune.enabled` themselves: it delays the beginning of "
       "epochs (docs/performance.md). 1: they leave it on."},
      {"SMDDP_DYNAMIC_PROCESS_SETS", "HOROVOD_DYNAMIC_PROCESS_SETS", "0", kForUsers,
       "1: `hvd.add_process_set` and `hvd.remove_process_set` work, as after `init(process_sets=\"dynamic\")`. 0: only "
       "the sets given to `init`. Must agree on all ranks."},
      {"SMDDP_FABRIC", "", "auto", kForUsers,
       "What carries messages between hosts, for smddprun (its --fabric) and the ranks of SageMaker's toolkit: auto or "
       "tcp, ofi (libfabric: EFA), ucx (docs/fabrics.md)."},
      {"SMDDP_FAILURE_GRACE", "", "10", kForUsers,
       "Seconds from the loss of a rank until this process is ended by force, unless it has called hvd.shutdown() by "
       "then (docs/reliability.md). 0: never."},
      {"SMDDP_GPU_LIBRARY", "", "", kForDevelopers,
       "Library that accesses GPUs, instead of the package's libsmddp_cuda.so. For tests on machines "
       "without a GPU (tests/fake_gpu)."},
      {"SMDDP_GPU_STAGE", "", "auto", kForUsers,
       "How gradients on GPUs are reduced (docs/gpu.md): nccl (NCCL among all ranks), nccl-node (NCCL inside the "
       "nodes, the CPUs between them), host (through host memory), or auto, the first of these that works on all "
       "ranks. Must agree on all ranks."},
      {"SMDDP_GRADIENT_ORDER", "", "observed", kForDevelopers,
       "How the gradients of a step are put into fusion buckets: observed (from the second step on in the order in "
       "which they became ready on rank 0 in the first) or listed (in the order of the variables). Rank 0's value "
       "counts."},
      {"SMDDP_HEARTBEAT_TIMEOUT", "", "15", kForUsers,
       "Seconds after which a silent rank (stopped, or its host or link is down) is reported as lost. Over TCP without "
       "MPI a host whose system acknowledges nothing (no power, a cut link) is reported after a fifth of that, later "
       "where the network is slow. Long-running Python code does not count as silent. 0: never. Must agree on all "
       "ranks."},
      {"SMDDP_HOST_ID", "", "", kForDevelopers,
       "Text that replaces the host's identity: ranks with equal text form a node. Lets one machine pretend to be "
       "several, or splits ranks that cannot share memory. Empty: host name, boot id and the shared-memory device."},
      {"SMDDP_KERAS_COMPAT", "", "1", kForUsers,
       "1: Keras 3 accepts the forms of older scripts (optimizer.variables(), optimizer.lr, Adam(lr=...), "
       "compile(experimental_run_tf_function=...)), each with a warning. 0: Keras is left as it is. Read when this "
       "library first imports Keras."},
      {"SMDDP_LOG_LEVEL", "HOROVOD_LOG_LEVEL", "warning", kForUsers,
       "Lowest severity of the engine's messages that is printed: trace (every request and gradient), debug, info, "
       "warning, error (or fatal, Horovod's word for it) or off, in small letters or capitals."},
      {"SMDDP_LOG_TIMESTAMP", "HOROVOD_LOG_HIDE_TIME", "0", kForUsers,
       "1: the engine's lines begin with the date and the time. 0: they do not. Horovod's variable has the opposite "
       "meaning: HOROVOD_LOG_HIDE_TIME=0 shows the time, 1 hides it."},
      {"SMDDP_MONITOR", "", "", kForUsers,
       "Folder in which every rank records its steps and the use of its host, for smddprun --diagnose "
       "(docs/insight.md); the same one on all hosts. smddprun --monitor sets it. Empty: nothing is recorded."},
      {"SMDDP_MPI", "", "auto", kForDevelopers,
       "Whether init() uses MPI: auto (when its launcher started the process, or it is initialised already), on, off."},
      {"SMDDP_COORDINATOR", "", "", kForUsers,
       "With SMDDP_RANK: where rank 0 is found, as host:port; the same for every rank."},
      {"SMDDP_PORT", "", "", kForUsers,
       "The port of rank 0's host at which ranks meet that no MPI has started. Empty: that of SMDDP_COORDINATOR or "
       "TF_CONFIG, or the one after MASTER_PORT (docs/launching.md)."},
      {"SMDDP_RANK", "", "", kForUsers, "This process's number in a job that no MPI has started (docs/launching.md)."},
      {"SMDDP_SECRET", "", "", kForUsers,
       "Known to the ranks of a job only: those that no MPI has started sign with it what they tell each other at the "
       "start. Empty: whoever reaches rank 0's port while the job starts can take part."},
      {"SMDDP_SIZE", "", "", kForUsers, "With SMDDP_RANK: how many ranks there are."},
      {"SMDDP_NCCL_LIBRARY", "", "", kForDevelopers,
       "The NCCL to use. Empty: the one of the nvidia-nccl wheel beside TensorFlow, else libnccl.so.2 where the "
       "dynamic linker finds it."},
      {"SMDDP_RAIL_ALGORITHM", "", "auto", kForDevelopers,
       "How equal slices are summed between nodes: direct, ring, recursive_doubling, halving_doubling, or auto, which "
       "chooses for each operation (docs/algorithms.md). Must agree on all ranks."},
      {"SMDDP_RAIL_BANDWIDTH_MBPS", "", "auto", kForDevelopers,
       "Megabits per second that the cost model assumes between two nodes for each local rank. auto: measured by "
       "init(). Must agree on all ranks."},
      {"SMDDP_RAIL_LATENCY_US", "", "auto", kForDevelopers,
       "Microseconds from one node to another that the cost model assumes. auto: measured by init(). Must agree on all "
       "ranks."},
      {"SMDDP_SHARED_TENSORS", "", "1", kForUsers,
       "1: `hvd.init` gives TensorFlow an allocator that keeps the memory of large tensors between steps, where the "
       "ranks of a node read it (docs/performance.md). 0: tensors lie where TensorFlow puts them."},
      {"SMDDP_STALL_ERROR_SECONDS", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "0", kForUsers,
       "Seconds after which an operation that waits for missing ranks fails on all ranks. 0: never, however long a "
       "rank evaluates or saves; lost ranks are detected by SMDDP_HEARTBEAT_TIMEOUT."},
      {"SMDDP_STALL_WARN_SECONDS", "HOROVOD_STALL_CHECK_TIME_SECONDS", "60", kForUsers,
       "Seconds after which a warning names the ranks that an operation waits for and what they are doing; repeated "
       "each time the wait has doubled. At a program's start, if more, once after 5 s. 0: never."},
      {"SMDDP_START_TIMEOUT", "HOROVOD_START_TIMEOUT", "300", kForUsers,
       "Seconds that init() waits for the other ranks before it fails."},
      {"SMDDP_TIMELINE", "HOROVOD_TIMELINE", "", kForUsers,
       "File for the timeline of all ranks, from init() to shutdown(), written by rank 0, for chrome://tracing or "
       "Perfetto (docs/timeline.md). DYNAMIC or empty: none until hvd.start_timeline(). Rank 0's value counts."},
      {"SMDDP_TIMELINE_MARK_CYCLES", "HOROVOD_TIMELINE_MARK_CYCLES", "0", kForUsers,
       "1: the timeline that SMDDP_TIMELINE names has a mark CYCLE_START where the engine begins to move data after it "
       "was idle. 0: no."},
      {"SMDDP_VERIFY", "", "0", kForUsers,
       "1: every collective is checked before its result is returned: checksums of the ranks' inputs and results are "
       "compared (docs/reliability.md). 0: no. Must agree on all ranks."},
  };
  return variables;
}

std::vector<std::string> NamesInEnvironment() {
  std::vector<std::string> names;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (std::strncmp(*entry, "SMDDP_", 6) == 0) names.emplace_back(*entry, std::strcspn(*entry, "="));
  }
  return names;
}

std::vector<std::string> UnknownNames(std::vector<std::string> names) {
  names.erase(std::remove_if(names.begin(), names.end(), IsKnown), names.end());
  return names;
}

Result<Env> ReadEnv() {
  Env env;
  env.host_id = Find("SMDDP_HOST_ID").text;
  SMDDP_RETURN_IF_ERROR(ReadSwitch("SMDDP_AUTOTUNE", &env.autotune));
  SMDDP_RETURN_IF_ERROR(ReadSwitch("SMDDP_DYNAMIC_PROCESS_SETS", &env.dynamic_process_sets));
  env.cpu_isa = Find("SMDDP_CPU_ISA").text;
  SMDDP_RETURN_IF_ERROR(ReadChoice("SMDDP_GPU_STAGE", {"auto", "nccl", "nccl-node", "host"}, &env.gpu_stage));
  env.ranks_share_gpus = IsTrue(Get("NCCL_MULTI_RANK_GPU_ENABLE"));
  SMDDP_RETURN_IF_ERROR(ReadChoice("SMDDP_GRADIENT_ORDER", {"observed", "listed"}, &env.gradient_order));
  SMDDP_RETURN_IF_ERROR(ReadLogLevel(&env.log_level));
  SMDDP_RETURN_IF_ERROR(ReadLogTimestamp(&env.log_timestamp));
  SMDDP_RETURN_IF_ERROR(ReadChoice("SMDDP_MPI", {"auto", "on", "off"}, &env.mpi));
  env.rail_algorithm = Find("SMDDP_RAIL_ALGORITHM").text;
  SMDDP_RETURN_IF_ERROR(ReadBytes("SMDDP_BUCKET_BYTES", 0, &env.bucket_bytes));
  SMDDP_RETURN_IF_ERROR(ReadBytes("SMDDP_CHUNK_BYTES", 4096, &env.chunk_bytes));
  SMDDP_RETURN_IF_ERROR(ReadCount("SMDDP_CACHE_CAPACITY", &env.cache_capacity));
  SMDDP_RETURN_IF_ERROR(ReadRate("SMDDP_RAIL_LATENCY_US", &env.rail_latency_s));
  SMDDP_RETURN_IF_ERROR(ReadRate("SMDDP_RAIL_BANDWIDTH_MBPS", &env.rail_bytes_per_s));
  env.rail_latency_s *= 1e-6;
  env.rail_bytes_per_s *= 1e6 / 8;
  SMDDP_RETURN_IF_ERROR(ReadSeconds("SMDDP_STALL_WARN_SECONDS", &env.stall_warn_s));
  SMDDP_RETURN_IF_ERROR(ReadSeconds("SMDDP_STALL_ERROR_SECONDS", &env.stall_error_s));
  SMDDP_RETURN_IF_ERROR(ReadSeconds("SMDDP_HEARTBEAT_TIMEOUT", &env.heartbeat_timeout_s));
  SMDDP_RETURN_IF_ERROR(ReadSeconds("SMDDP_FAILURE_GRACE", &env.failure_grace_s));
  SMDDP_RETURN_IF_ERROR(ReadSeconds("SMDDP_START_TIMEOUT", &env.start_timeout_s));
  env.timeline = Find("SMDDP_TIMELINE").text;
  if (env.timeline == "DYNAMIC") env.timeline.clear();
  SMDDP_RETURN_IF_ERROR(ReadSwitch("SMDDP_TIMELINE_MARK_CYCLES", &env.timeline_cycles));
  SMDDP_RETURN_IF_ERROR(ReadSwitch("SMDDP_VERIFY", &env.verify));
  const std::string legacy_keras = TextOf(Get("TF_USE_LEGACY_KERAS"));
  env.legacy_keras = legacy_keras == "1" || legacy_keras == "true" || legacy_keras == "True";  // as TensorFlow reads it
  if (IsTrue(Get("HOROVOD_STALL_CHECK_DISABLE"))) env.stall_warn_s = env.stall_error_s = 0;
  return env;
}

DeviceLibraries ReadDeviceLibraries() { return {Find("SMDDP_GPU_LIBRARY").text, Find("SMDDP_NCCL_LIBRARY").text}; }

Result<bool> ReadSwitch(const std::string& name) {
  bool wanted = false;
  SMDDP_RETURN_IF_ERROR(ReadSwitch(name, &wanted));
  return wanted;
}

std::string ReadMonitorFolder() { return Find("SMDDP_MONITOR").text; }

bool StartedByLauncher() {
  const char* const open_mpi = Get("OMPI_MCA_ess");
  const bool alone = open_mpi != nullptr && std::string(open_mpi) == "singleton";  // set by an MPI without a launcher
  return Get("OMPI_COMM_WORLD_SIZE") != nullptr ||
         (!alone && FirstOf({"PMIX_RANK", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"}) != nullptr);
}

bool MpiMayUseFabric(bool has_fabric) {
  const char* const layer = Get("OMPI_MCA_pml");
  if (layer == nullptr) return has_fabric || Get("OMPI_MCA_mtl") != nullptr;
  const std::string text = layer;
  const auto names = [&](const char* name) { return text.find(name) != std::string::npos; };
  return text[0] == '^' ? !names("cm") || !names("ucx") : text != "ob1";
}

int LauncherRank() {
  const char* const text = FirstOf({"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"});
  return text != nullptr ? std::atoi(text) : -1;
}

std::string LauncherJob() { return TextOf(FirstOf({"PMIX_NAMESPACE", "PMI_JOBID", "SLURM_JOB_ID"})); }

std::string LauncherNetwork() { return TextOf(Get("OMPI_MCA_btl_tcp_if_include")); }

std::string LauncherNotes() { return TextOf(Get("SMDDP_RUN_NOTES")); }

void SetDefault(const char* name, const char* value) { setenv(name, value, /*overwrite=*/0); }

}  // namespace smddp
