#include "inproc/cluster.h"

#include <cstdlib>
#include <numeric>
#include <thread>

#include "inproc/hub.h"
#include "inproc/worlds.h"
#include "runtime/bootstrap/bootstrap.h"
#include "runtime/session/engine_session.h"
#include "transport/shm/segment.h"
#include "transport/tcp/network.h"
#include "transport/tcp/tcp_transport.h"

namespace smddp {
namespace {

constexpr double kDeadlineSeconds = 60;  // a test that stands still ends with an error

class Cluster : public InprocCluster {
 public:
  explicit Cluster(int size) : hub_(size) {}
  ~Cluster() override {
    // All say goodbye before any memory goes: engines read one another's segments. At the same time, as programs do.
    std::vector<std::thread> stopping;
    for (auto& session : sessions_) stopping.emplace_back([&session] { session->Stop(); });
    for (std::thread& one : stopping) one.join();
  }

  int size() const override { return static_cast<int>(sessions_.size()); }
  Session& session(int rank) override { return *sessions_[rank]; }
  void Stop(int rank, bool at_exit) override { sessions_[rank]->Stop(at_exit); }

  Status Start(const ClusterOptions& options) {
    Env env;
    env.chunk_bytes = options.chunk_bytes;
    env.bucket_bytes = options.bucket_bytes;
    env.cache_capacity = options.cache_capacity;
    env.cpu_isa = options.cpu_isa;
    env.gradient_order = options.gradient_order;
    env.gpu_stage = options.gpu_stage;
    env.stall_error_s = kDeadlineSeconds;
    env.heartbeat_timeout_s = kDeadlineSeconds;
    SMDDP_ASSIGN_OR_RETURN(const Env around, ReadEnv());  // so that any test can be run with SMDDP_VERIFY=1
    env.verify = around.verify;
    env.start_timeout_s = around.start_timeout_s;
    const bool around_shared = std::getenv("SMDDP_TEST_SHARED_TENSORS") != nullptr;  // the same
    RailChoice rail;
    SMDDP_ASSIGN_OR_RETURN(rail.by_name, RailAlgorithmNamed(options.rail_algorithm));
    std::vector<Topology> topologies;
    for (size_t rank = 0; rank < options.host_of_rank.size(); ++rank) {
      SMDDP_ASSIGN_OR_RETURN(Topology topology,
                             Topology::Build(static_cast<int>(rank), options.host_of_rank, options.global_ranks));
      SMDDP_ASSIGN_OR_RETURN(auto segment, Segment::Private(FabricParts::LayoutFor(topology, env).total_bytes));
      memory_->push_back(std::move(segment));
      topologies.push_back(std::move(topology));
    }
    if (options.tcp) {
      for (const World& world : WorldsOf(static_cast<int>(topologies.size()))) {
        SMDDP_ASSIGN_OR_RETURN(auto network, TcpNetwork::Start(world));
        networks_.push_back(std::move(network));
      }
    }
    for (Topology& topology : topologies) Add(std::move(topology), env, rail, options.shared_tensors || around_shared);
    return Status::Ok();
  }

 private:
  void Add(Topology topology, const Env& env, const RailChoice& rail, bool shared_tensors) {
    const int rank = topology.rank();
    std::vector<std::byte*> segments;
    for (int member : topology.node().world_ranks()) segments.push_back((*memory_)[member]->data());
    const BufferView everything(nullptr, SIZE_MAX / 2);
    std::vector<BufferView> tensors(shared_tensors ? segments.size() : 0, everything);
    auto parts = std::make_unique<FabricParts>(std::move(topology), env, rail, std::move(segments), memory_,
                                               NewTransport(rank), /*lives=*/nullptr, std::move(tensors));
    hub_.SetDoorbell(rank, &parts->node().doorbell());
    sessions_.push_back(std::make_unique<EngineSession>(std::move(parts), env, plans_));
  }

  std::unique_ptr<Transport> NewTransport(int rank) {
    if (networks_.empty()) return std::make_unique<InprocTransport>(hub_, rank);
    std::vector<int> all(networks_.size());
    std::iota(all.begin(), all.end(), 0);
    return std::make_unique<TcpTransport>(networks_[rank], /*context=*/1, std::move(all));
  }

  PlanRegistry plans_;
  InprocHub hub_;
  std::vector<std::shared_ptr<TcpNetwork>> networks_;  // by rank; none where ranks do not talk over TCP
  std::shared_ptr<std::vector<std::unique_ptr<Segment>>> memory_ =
      std::make_shared<std::vector<std::unique_ptr<Segment>>>();
  std::vector<std::unique_ptr<EngineSession>> sessions_;
};

}  // namespace

Result<std::unique_ptr<InprocCluster>> StartInprocCluster(const ClusterOptions& options) {
  auto cluster = std::make_unique<Cluster>(static_cast<int>(options.host_of_rank.size()));
  SMDDP_RETURN_IF_ERROR(cluster->Start(options));
  return std::unique_ptr<InprocCluster>(std::move(cluster));
}

}  // namespace smddp
