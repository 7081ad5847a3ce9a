#include "runtime/bootstrap.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "core/log.h"
#include "core/version.h"
#include "core/wire.h"
#include "runtime/link_probe.h"
#include "transport/shm/segment.h"

namespace smddp {
namespace {

// What a rank tells the others first. All but the host must be equal everywhere.
struct Hello {
  std::string version, host;
  int64_t bucket_bytes = 0, chunk_bytes = 0;
  std::string rail_algorithm;
  double rail_latency_s = 0, rail_bytes_per_s = 0;
  bool dynamic_process_sets = false, verify = false;
};

std::string Encode(const Hello& hello) {
  WireWriter writer;
  writer.PutText(hello.version);
  writer.PutText(hello.host);
  writer.Put(hello.bucket_bytes);
  writer.Put(hello.chunk_bytes);
  writer.PutText(hello.rail_algorithm);
  writer.Put(hello.rail_latency_s);
  writer.Put(hello.rail_bytes_per_s);
  writer.Put(static_cast<uint8_t>(hello.dynamic_process_sets));
  writer.Put(static_cast<uint8_t>(hello.verify));
  return writer.Take();
}

Result<Hello> Decode(const std::string& bytes, int rank) {
  WireReader reader(bytes);
  Hello hello;
  hello.version = reader.GetText();
  hello.host = reader.GetText();
  hello.bucket_bytes = reader.Get<int64_t>();
  hello.chunk_bytes = reader.Get<int64_t>();
  hello.rail_algorithm = reader.GetText();
  hello.rail_latency_s = reader.Get<double>();
  hello.rail_bytes_per_s = reader.Get<double>();
  hello.dynamic_process_sets = reader.GetBool();
  hello.verify = reader.GetBool();
  if (reader.at_end()) return hello;
  return Status(Code::kFailedPrecondition,
                "Rank " + std::to_string(rank) + " runs another version of smddp_tf. Install the same one everywhere.");
}

Status Disagree(const std::string& what, const std::string& first, int rank, const std::string& other) {
  return Status(Code::kFailedPrecondition, what + " must be the same on all ranks: rank 0 has " + first + ", rank " +
                                               std::to_string(rank) + " has " + other + ".");
}

std::string BytesText(int64_t bytes) { return bytes == kAutoBytes ? "auto" : std::to_string(bytes); }
std::string RateText(double rate) { return rate == 0 ? "auto" : std::to_string(rate); }

Status SameEverywhere(const std::vector<Hello>& hellos) {
  const Hello& first = hellos.front();
  for (size_t i = 1; i < hellos.size(); ++i) {
    const Hello& other = hellos[i];
    const int rank = static_cast<int>(i);
    if (other.version != first.version) {
      return Disagree("The version of smddp_tf", first.version, rank, other.version);
    }
    if (other.bucket_bytes != first.bucket_bytes) {
      return Disagree("SMDDP_BUCKET_BYTES (or HOROVOD_FUSION_THRESHOLD)", BytesText(first.bucket_bytes), rank,
                      BytesText(other.bucket_bytes));
    }
    if (other.rail_algorithm != first.rail_algorithm) {
      return Disagree("SMDDP_RAIL_ALGORITHM", first.rail_algorithm, rank, other.rail_algorithm);
    }
    if (other.rail_latency_s != first.rail_latency_s) {
      return Disagree("SMDDP_RAIL_LATENCY_US", RateText(first.rail_latency_s * 1e6), rank,
                      RateText(other.rail_latency_s * 1e6));
    }
    if (other.rail_bytes_per_s != first.rail_bytes_per_s) {
      return Disagree("SMDDP_RAIL_BANDWIDTH_MBPS", RateText(first.rail_bytes_per_s * 8e-6), rank,
                      RateText(other.rail_bytes_per_s * 8e-6));
    }
    if (other.dynamic_process_sets != first.dynamic_process_sets) {
      const auto text = [](bool dynamic) { return dynamic ? "dynamic ones" : "none"; };
      return Disagree("init(process_sets=\"dynamic\") or HOROVOD_DYNAMIC_PROCESS_SETS",
                      text(first.dynamic_process_sets), rank, text(other.dynamic_process_sets));
    }
    if (other.verify != first.verify) {
      return Disagree("SMDDP_VERIFY", first.verify ? "1" : "0", rank, other.verify ? "1" : "0");
    }
    if (other.chunk_bytes != first.chunk_bytes) {
      return Disagree("SMDDP_CHUNK_BYTES", std::to_string(first.chunk_bytes), rank, std::to_string(other.chunk_bytes));
    }
  }
  return Status::Ok();
}

// The node's segments, by local rank.
struct NodeMemory {
  std::vector<Segment> segments;
  std::vector<std::byte*> addresses() const {
    std::vector<std::byte*> all;
    for (const Segment& segment : segments) all.push_back(segment.data());
    return all;
  }
};

Status OpenPeers(const Topology& topology, const std::vector<std::string>& names, size_t bytes, NodeMemory* memory) {
  for (int member = 0; member < topology.local_size(); ++member) {
    if (member == topology.local_rank()) continue;
    SMDDP_ASSIGN_OR_RETURN(memory->segments[member], Segment::Open(names[topology.node().world_rank(member)], bytes));
  }
  return Status::Ok();
}

Result<std::shared_ptr<NodeMemory>> ShareMemory(const Topology& topology, size_t bytes, const Exchange& exchange) {
  auto memory = std::make_shared<NodeMemory>();
  memory->segments.resize(topology.local_size());
  if (topology.local_size() > 1 && topology.local_rank() == 0) Segment::RemoveStale();
  Segment& mine = memory->segments[topology.local_rank()];
  auto created = topology.local_size() > 1 ? Segment::Create(bytes) : Segment::Private(bytes);
  SMDDP_RETURN_IF_ERROR(AllOk(created.status(), exchange));
  mine = std::move(*created);
  SMDDP_ASSIGN_OR_RETURN(const auto names, exchange(mine.name()));
  const Status opened = OpenPeers(topology, names, bytes, memory.get());
  SMDDP_RETURN_IF_ERROR(AllOk(opened, exchange));  // from here on everybody has everybody's
  mine.Unlink();
  return memory;
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
  for (const AllreduceAlgorithm* algorithm : Algorithms()) names += std::string(", ") + algorithm->info().name;
  return Status(Code::kInvalidArgument, "Environment variable SMDDP_RAIL_ALGORITHM must be one of " + names +
                                            ". Received: '" + name + "'. Correct or unset it on every rank.");
}

namespace {

// Collective.
Result<RailChoice> ChooseRail(const Topology& topology, const Env& env, Transport* far, const Exchange& exchange,
                              const Deadline& deadline) {
  RailChoice rail;
  SMDDP_ASSIGN_OR_RETURN(rail.by_name, RailAlgorithmNamed(env.rail_algorithm));
  const bool given = env.rail_latency_s > 0 && env.rail_bytes_per_s > 0;
  if (topology.node_count() > 1 && rail.by_name == nullptr && !given) {
    SMDDP_ASSIGN_OR_RETURN(rail.link, MeasureLink(topology, *far, exchange, deadline));
    Log(LogLevel::kDebug, "between nodes: latency " + RateText(rail.link.latency_s * 1e6) + " us, " +
                              RateText(rail.link.bytes_per_s * 8e-6) + " Mbit/s for each local rank, " +
                              RateText(rail.link.message_s * 1e6) + " us to send a message");
  }
  if (env.rail_latency_s > 0) rail.link.latency_s = env.rail_latency_s;
  if (env.rail_bytes_per_s > 0) rail.link.bytes_per_s = env.rail_bytes_per_s;
  return rail;
}

}  // namespace

Result<std::unique_ptr<FabricParts>> Bootstrap(int rank, const Env& env, const Exchange& exchange,
                                               std::unique_ptr<Transport> far, const Deadline& deadline,
                                               const RailChoice* known_rail) {
  const Hello mine = {Version(),          HostId(env),        env.bucket_bytes,     env.chunk_bytes,
                      env.rail_algorithm, env.rail_latency_s, env.rail_bytes_per_s, env.dynamic_process_sets,
                      env.verify};
  SMDDP_ASSIGN_OR_RETURN(const auto texts, exchange(Encode(mine)));
  std::vector<Hello> hellos;
  std::vector<std::string> hosts;
  for (size_t i = 0; i < texts.size(); ++i) {
    SMDDP_ASSIGN_OR_RETURN(Hello hello, Decode(texts[i], static_cast<int>(i)));
    hosts.push_back(hello.host);
    hellos.push_back(std::move(hello));
  }
  SMDDP_RETURN_IF_ERROR(SameEverywhere(hellos));
  SMDDP_ASSIGN_OR_RETURN(Topology topology, Topology::Build(rank, hosts, exchange.global_ranks));
  Result<RailChoice> rail =
      known_rail != nullptr ? *known_rail : ChooseRail(topology, env, far.get(), exchange, deadline);
  SMDDP_RETURN_IF_ERROR(rail.status());
  const size_t bytes = FabricParts::LayoutFor(topology, env).total_bytes;
  SMDDP_ASSIGN_OR_RETURN(auto memory, ShareMemory(topology, bytes, exchange));
  auto addresses = memory->addresses();
  auto lives = [memory](int member) { return memory->segments[member].OwnerLives(); };
  return std::make_unique<FabricParts>(std::move(topology), env, *rail, std::move(addresses), memory, std::move(far),
                                       std::move(lives));
}

}  // namespace smddp
