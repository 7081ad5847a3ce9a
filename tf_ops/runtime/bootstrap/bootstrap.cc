#include "runtime/bootstrap/bootstrap.h"

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>

#include "core/process/log.h"
#include "core/process/version.h"
#include "core/wire.h"
#include "runtime/bootstrap/link_probe.h"
#include "transport/shm/segment.h"

namespace smddp {
namespace {

// What the ranks of the node map.
struct NodeMemory {
  std::vector<std::unique_ptr<Segment>> segments;     // the node's, by local rank
  std::vector<std::shared_ptr<std::byte>> of_others;  // keep the other ranks' tensors mapped
  std::vector<BufferView> tensors;                    // by local rank; empty: not shared
};

// The first message of a rank: where it runs, and what must be the same everywhere.
struct Hello {
  std::string version, host;
  Facts settings, versions;  // the latter of other software
  int64_t shared_bytes = 0;  // of shared memory that are free on its host
  TensorMemoryAddress tensors;

  SMDDP_FIELDS(version, host, settings, versions, shared_bytes, tensors);
};

// The second message of a rank.
struct Ready {
  std::string segment;
  bool maps_tensors = false;  // of all other ranks of its node

  SMDDP_FIELDS(segment, maps_tensors);
};

// A kind of facts: how its sentences begin, and what to do where ranks differ.
struct FactKind {
  const char *prefix, *advice;
};
constexpr FactKind kSetting = {"", "Set the same one for every rank (smddprun or mpirun -x NAME)."};
constexpr FactKind kVersion = {"The version of ",
                               "Install the same one for every rank, and start each with the Python that has it."};

std::string BytesText(int64_t bytes) { return bytes == kAutoBytes ? "auto" : std::to_string(bytes); }

// Ranks of one version have the same facts; those that the program adds may be missing.
Status SameFacts(const FactKind& kind, const Facts& first, int rank, const Facts& other) {
  for (size_t i = 0; i < std::max(first.size(), other.size()); ++i) {
    const auto fact = [i](const Facts& facts) {
      return i < facts.size() ? facts[i] : std::pair<std::string, std::string>("", "nothing");
    };
    if (fact(first) == fact(other)) continue;
    const std::string what = fact(first).first.empty() ? fact(other).first : fact(first).first;
    return Status(Reason::kDisagreement, kind.prefix, what, " must be the same on all ranks: rank 0 has ",
                  fact(first).second, ", rank ", rank, " has ", fact(other).second, ". ", kind.advice);
  }
  return Status::Ok();
}

// Of a rate or a time; 0 is "auto".
std::string RateText(double rate) { return rate == 0 ? "auto" : std::to_string(rate); }

// Everything the engine itself needs to agree on.
Facts FactsOf(const Env& env) {
  return {
      {"SMDDP_BUCKET_BYTES (or HOROVOD_FUSION_THRESHOLD)", BytesText(env.bucket_bytes)},
      {"SMDDP_CHUNK_BYTES", BytesText(env.chunk_bytes)},
      {"SMDDP_GPU_STAGE", env.gpu_stage},
      {"SMDDP_HEARTBEAT_TIMEOUT", std::to_string(env.heartbeat_timeout_s)},
      {"SMDDP_RAIL_ALGORITHM", env.rail_algorithm},
      {"SMDDP_RAIL_BANDWIDTH_MBPS", RateText(env.rail_bytes_per_s * 8e-6)},
      {"SMDDP_RAIL_LATENCY_US", RateText(env.rail_latency_s * 1e6)},
      {"SMDDP_VERIFY", std::to_string(env.verify)},
      {"The folder to record in (SMDDP_MONITOR)", ReadMonitorFolder()},
      {"TF_USE_LEGACY_KERAS", std::to_string(env.legacy_keras)},
      {"init(process_sets=\"dynamic\") or HOROVOD_DYNAMIC_PROCESS_SETS",
       env.dynamic_process_sets ? "dynamic ones" : "none"},
  };
}

// By rank. An error when one cannot be decoded, or differs from rank 0's; the same on every rank.
Result<std::vector<Hello>> DecodeHellos(const std::vector<std::string>& texts) {
  std::vector<Hello> hellos(texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    const int rank = static_cast<int>(i);
    const bool readable = Decode(texts[i], &hellos[i]);
    SMDDP_RETURN_IF_ERROR(
        SameFacts(kVersion, {{"smddp_tf", hellos[0].version}}, rank, {{"smddp_tf", hellos[i].version}}));
    if (!readable) {
      return Status(Reason::kDisagreement, "Rank ", rank,
                    " runs another version of smddp_tf. Install the same version on all hosts.");
    }
    SMDDP_RETURN_IF_ERROR(SameFacts(kSetting, hellos[0].settings, rank, hellos[i].settings));
    SMDDP_RETURN_IF_ERROR(SameFacts(kVersion, hellos[0].versions, rank, hellos[i].versions));
  }
  return hellos;
}

// Only where this rank has such memory.
Status MapAllTensors(const Topology& topology, const std::vector<Hello>& hellos, const TensorMemory& mine,
                     NodeMemory* memory) {
  for (int member = 0; member < topology.local_size(); ++member) {
    if (member == topology.local_rank()) {
      memory->tensors.push_back(mine.memory);
      continue;
    }
    const int rank = topology.node().world_rank(member);
    const auto mapped = MapTensors(hellos[rank].tensors);
    if (!mapped.ok()) return Status(Reason::kNoResources, "of rank ", rank, ": ", mapped.status().message());
    memory->of_others.push_back(mapped.value());
    memory->tensors.push_back({mapped.value().get(), static_cast<size_t>(hellos[rank].tensors.bytes)});
  }
  return Status::Ok();
}

Status OpenPeers(const Topology& topology, const std::vector<Ready>& ready, size_t bytes,
                 std::vector<std::unique_ptr<Segment>>* segments) {
  for (int member = 0; member < topology.local_size(); ++member) {
    if (member == topology.local_rank()) continue;
    SMDDP_ASSIGN_OR_RETURN((*segments)[member],
                           Segment::Open(ready[topology.node().world_rank(member)].segment, bytes));
  }
  return Status::Ok();
}

// By rank.
Result<std::vector<Ready>> ExchangeReady(const Ready& mine, const Exchange& exchange) {
  SMDDP_ASSIGN_OR_RETURN(const auto texts, exchange(Encode(mine)));
  std::vector<Ready> all(texts.size());
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    if (!Decode(texts[rank], &all[rank])) return OtherVersion("The start-up message of rank ", rank);
  }
  return all;
}

Result<std::shared_ptr<NodeMemory>> ShareMemory(const Topology& topology, const std::vector<Hello>& hellos,
                                                const TensorMemory& tensors, size_t bytes, const Exchange& exchange) {
  auto memory = std::make_shared<NodeMemory>();
  memory->segments.resize(topology.local_size());
  const bool wanted = topology.local_size() > 1 && tensors.memory.size > 0;
  const Status mapped = wanted ? MapAllTensors(topology, hellos, tensors, memory.get()) : Status::Ok();
  if (!mapped.ok()) {
    Log(LogLevel::kInfo, "The ranks of this node copy tensors that they could share: this rank cannot map those ",
        mapped.message());
  }
  if (topology.local_size() > 1 && topology.local_rank() == 0) Segment::RemoveStale();
  std::unique_ptr<Segment>& mine = memory->segments[topology.local_rank()];
  auto created = topology.local_size() > 1 ? Segment::Create(bytes) : Segment::Private(bytes);
  SMDDP_RETURN_IF_ERROR(AllOk(created.status(), exchange));
  mine = std::move(*created);
  SMDDP_ASSIGN_OR_RETURN(const auto ready, ExchangeReady({mine->name(), wanted && mapped.ok()}, exchange));
  for (int rank : topology.node().world_ranks()) {
    if (ready[rank].maps_tensors) continue;
    memory->tensors.clear();
    memory->of_others.clear();
  }
  const Status opened = OpenPeers(topology, ready, bytes, &memory->segments);
  SMDDP_RETURN_IF_ERROR(AllOk(opened, exchange));  // from here on all ranks have all segments
  mine->Unlink();
  return memory;
}

// More than any chunk needs where it is not known.
int64_t FreeSharedBytes() {
  struct statvfs found = {};
  if (statvfs("/dev/shm", &found) != 0) return std::numeric_limits<int64_t>::max();
  return static_cast<int64_t>(found.f_bavail) * static_cast<int64_t>(found.f_frsize);
}

// SMDDP_CHUNK_BYTES, or what suits all hosts.
int64_t ChunkBytesFor(const Env& env, const Topology& topology, const std::vector<Hello>& hellos) {
  if (env.chunk_bytes != kAutoBytes) return env.chunk_bytes;
  int64_t free_bytes = std::numeric_limits<int64_t>::max();
  for (const Hello& hello : hellos) free_bytes = std::min(free_bytes, hello.shared_bytes);
  int members = 1;
  for (const Group& node : topology.nodes()) members = std::max(members, node.size());
  const int rails = topology.rail_count();
  return ChunkBytesWithin(free_bytes, topology.node_count() * rails, members, rails);
}

// Collective.
Result<RailChoice> ChooseRail(const Topology& topology, const Env& env, Transport* far, const Exchange& exchange,
                              const Deadline& deadline) {
  RailChoice rail;
  SMDDP_ASSIGN_OR_RETURN(rail.by_name, RailAlgorithmNamed(env.rail_algorithm));
  const bool given = env.rail_latency_s > 0 && env.rail_bytes_per_s > 0;
  if (topology.node_count() > 1 && rail.by_name == nullptr && !given) {
    SMDDP_ASSIGN_OR_RETURN(rail.link, MeasureLink(topology, *far, exchange, deadline));
    Log(LogLevel::kDebug, "between nodes: latency ", RateText(rail.link.latency_s * 1e6), " us, ",
        RateText(rail.link.bytes_per_s * 8e-6), " Mbit/s for each local rank, ", RateText(rail.link.message_s * 1e6),
        " us to send a message");
  }
  if (env.rail_latency_s > 0) rail.link.latency_s = env.rail_latency_s;
  if (env.rail_bytes_per_s > 0) rail.link.bytes_per_s = env.rail_bytes_per_s;
  return rail;
}

}  // namespace

std::string HostId(const Env& env) {
  if (!env.host_id.empty()) return env.host_id;
  char host[256] = {};
  gethostname(host, sizeof(host) - 1);
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat shm = {};
  stat("/dev/shm", &shm);
  return std::string(host) + ":" + boot + ":" + std::to_string(shm.st_dev);
}

Result<const AllreduceAlgorithm*> RailAlgorithmNamed(const std::string& name) {
  if (name.empty() || name == "auto") return nullptr;
  if (const AllreduceAlgorithm* algorithm = AlgorithmByName(name)) return algorithm;
  std::string names = "auto";
  for (const AllreduceAlgorithm* algorithm : Algorithms()) names += std::string(", ") + algorithm->name;
  return Status(Reason::kBadArgument, "Environment variable SMDDP_RAIL_ALGORITHM must be one of ", names,
                ". Received: '", name, "'. Correct or unset it on every rank.");
}

Result<std::unique_ptr<FabricParts>> Bootstrap(int rank, const Env& env, const Exchange& exchange,
                                               std::unique_ptr<Transport> far, const Deadline& deadline,
                                               const RailChoice* known_rail, const Facts& versions,
                                               const TensorMemory& tensors) {
  const Hello mine = {Version(), HostId(env), FactsOf(env), versions, FreeSharedBytes(), AddressOf(tensors)};
  SMDDP_ASSIGN_OR_RETURN(const auto texts, exchange(Encode(mine)));
  SMDDP_ASSIGN_OR_RETURN(const auto hellos, DecodeHellos(texts));
  std::vector<std::string> hosts;
  for (const Hello& hello : hellos) hosts.push_back(hello.host);
  SMDDP_ASSIGN_OR_RETURN(Topology topology, Topology::Build(rank, hosts, exchange.global_ranks));
  Result<RailChoice> rail =
      known_rail != nullptr ? *known_rail : ChooseRail(topology, env, far.get(), exchange, deadline);
  SMDDP_RETURN_IF_ERROR(rail.status());
  Env decided = env;
  decided.chunk_bytes = ChunkBytesFor(env, topology, hellos);
  const size_t bytes = FabricParts::LayoutFor(topology, decided).total_bytes;
  SMDDP_ASSIGN_OR_RETURN(auto memory, ShareMemory(topology, hellos, tensors, bytes, exchange));
  std::vector<std::byte*> addresses;
  for (const auto& segment : memory->segments) addresses.push_back(segment->data());
  auto lives = [memory](int member) { return memory->segments[member]->OwnerLives(); };
  return std::make_unique<FabricParts>(std::move(topology), decided, *rail, std::move(addresses), memory,
                                       std::move(far), std::move(lives), memory->tensors);
}

}  // namespace smddp
