#include "runtime/session/session_log.h"

#include <unistd.h>

#include "core/process/log.h"
#include "core/process/version.h"
#include "transport/mpi_library.h"

namespace smddp {
namespace {

constexpr size_t kMaxNodes = 8;  // the ranks of up to this many nodes are listed

std::string Counted(int count, const char* what) { return Concat(count, " ", what, count == 1 ? "" : "s"); }

// "Open MPI v5.0.10", from the long text that MPI returns.
std::string MpiText() {
  if (!TheMpi().is_initialized()) return "no MPI";
  const std::string text = TheMpi().version_text();
  return text.substr(0, text.find_first_of(",\n"));
}

// "Python 3.11, TensorFlow 2.21.0, Keras 3.15.0"
std::string VersionsText(const StartOptions& options) {
  std::string text;
  for (const auto& [of, version] : options.versions) text += "; " + of + " " + version;
  return text;
}

}  // namespace

std::string RanksAndNodes(const Topology& topology) {
  std::string text = Counted(topology.size(), "rank") + " on " + Counted(topology.node_count(), "node");
  if (topology.node_count() == 1) return text;
  if (topology.nodes().size() > kMaxNodes) {
    return text + (topology.uniform() ? " (" + std::to_string(topology.local_size()) + " on each)" : "");
  }
  std::string sizes;
  for (const Group& node : topology.nodes()) sizes += (sizes.empty() ? "" : "+") + std::to_string(node.size());
  return text + " (" + sizes + ")";
}

void LogStart(const Topology& topology, const Env& env, const std::string& kernels, const StartOptions& options) {
  if (topology.rank() == 0 && env.autotune) {
    Log(LogLevel::kWarning,
        "HOROVOD_AUTOTUNE (SMDDP_AUTOTUNE) has no effect: nothing is tuned while a job runs. Set SMDDP_BUCKET_BYTES "
        "(docs/performance.md).");
  }
  if (topology.rank() == 0 && Logs(LogLevel::kInfo)) {
    const std::string network = LauncherNetwork();
    Log(LogLevel::kInfo, "smddp_tf ", Version(), ": ", RanksAndNodes(topology), "; ", MpiText(),
        network.empty() ? "" : "; network " + network, VersionsText(options), "; CPU kernels for ", kernels);
  }
  Log(LogLevel::kDebug, NamedWithHost(topology, topology.rank()), " of ", topology.size(),
      " begins its session, as local rank ", topology.local_rank(), " of ", topology.local_size(), ", process ",
      getpid());
}

}  // namespace smddp
