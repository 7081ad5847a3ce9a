#include "runtime/bootstrap.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "core/version.h"
#include "core/wire.h"
#include "transport/shm/segment.h"

namespace smddp {
namespace {

// What a rank tells the others first. All but the host must be equal everywhere.
struct Hello {
  std::string version, host;
  int64_t bucket_bytes = 0, chunk_bytes = 0;
};

std::string Encode(const Hello& hello) {
  WireWriter writer;
  writer.PutText(hello.version);
  writer.PutText(hello.host);
  writer.Put(hello.bucket_bytes);
  writer.Put(hello.chunk_bytes);
  return writer.Take();
}

Result<Hello> Decode(const std::string& bytes, int rank) {
  WireReader reader(bytes);
  Hello hello;
  hello.version = reader.GetText();
  hello.host = reader.GetText();
  hello.bucket_bytes = reader.Get<int64_t>();
  hello.chunk_bytes = reader.Get<int64_t>();
  if (reader.at_end()) return hello;
  return Status(Code::kFailedPrecondition,
                "Rank " + std::to_string(rank) + " runs another version of smddp_tf. Install the same one everywhere.");
}

Status Disagree(const std::string& what, const std::string& first, int rank, const std::string& other) {
  return Status(Code::kFailedPrecondition, what + " must be the same on all ranks: rank 0 has " + first + ", rank " +
                                               std::to_string(rank) + " has " + other + ".");
}

Status SameEverywhere(const std::vector<Hello>& hellos) {
  const Hello& first = hellos.front();
  for (size_t i = 1; i < hellos.size(); ++i) {
    const Hello& other = hellos[i];
    const int rank = static_cast<int>(i);
    if (other.version != first.version) {
      return Disagree("The version of smddp_tf", first.version, rank, other.version);
    }
    if (other.bucket_bytes != first.bucket_bytes) {
      return Disagree("SMDDP_BUCKET_BYTES (or HOROVOD_FUSION_THRESHOLD)", std::to_string(first.bucket_bytes), rank,
                      std::to_string(other.bucket_bytes));
    }
    if (other.chunk_bytes != first.chunk_bytes) {
      return Disagree("SMDDP_CHUNK_BYTES", std::to_string(first.chunk_bytes), rank, std::to_string(other.chunk_bytes));
    }
  }
  return Status::Ok();
}

// Spreads a local result: an error on one rank becomes the same error on all.
Status AllOk(const Status& mine, const Exchange& exchange) {
  SMDDP_ASSIGN_OR_RETURN(const auto errors, exchange(mine.ok() ? "" : mine.message()));
  for (size_t rank = 0; rank < errors.size(); ++rank) {
    if (errors[rank].empty()) continue;
    return Status(Code::kResourceExhausted, "hvd.init() failed on rank " + std::to_string(rank) + ": " + errors[rank]);
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

Result<std::unique_ptr<FabricParts>> Bootstrap(int rank, const Env& env, const Exchange& exchange,
                                               std::unique_ptr<Transport> far) {
  const Hello mine = {Version(), HostId(env), env.bucket_bytes, env.chunk_bytes};
  SMDDP_ASSIGN_OR_RETURN(const auto texts, exchange(Encode(mine)));
  std::vector<Hello> hellos;
  std::vector<std::string> hosts;
  for (size_t i = 0; i < texts.size(); ++i) {
    SMDDP_ASSIGN_OR_RETURN(Hello hello, Decode(texts[i], static_cast<int>(i)));
    hosts.push_back(hello.host);
    hellos.push_back(std::move(hello));
  }
  SMDDP_RETURN_IF_ERROR(SameEverywhere(hellos));
  SMDDP_ASSIGN_OR_RETURN(Topology topology, Topology::Build(rank, hosts));
  const size_t bytes = FabricParts::LayoutFor(topology, env).total_bytes;
  SMDDP_ASSIGN_OR_RETURN(auto memory, ShareMemory(topology, bytes, exchange));
  auto addresses = memory->addresses();
  return std::make_unique<FabricParts>(std::move(topology), env, std::move(addresses), std::move(memory),
                                       std::move(far));
}

}  // namespace smddp
