// One rank's fabric without any other, for pure functions of it; and jobs whose ranks are threads.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "inproc/cluster.h"
#include "inproc/hub.h"
#include "native/testing.h"
#include "runtime/bootstrap/fabric_parts.h"
#include "transport/shm/segment.h"

namespace smddp {

using Hosts = std::vector<std::string>;

// Nobody answers there.
inline std::unique_ptr<FabricParts> FabricOf(int rank, const Hosts& hosts, int64_t chunk_bytes = 4096) {
  static InprocHub hub(64);
  Env env;
  env.chunk_bytes = chunk_bytes;
  env.cpu_isa = "auto";
  Topology topology = Value(Topology::Build(rank, hosts));
  const auto memory = std::make_shared<std::vector<std::unique_ptr<Segment>>>();
  std::vector<std::byte*> segments;
  for (int member = 0; member < topology.local_size(); ++member) {
    memory->push_back(Value(Segment::Private(FabricParts::LayoutFor(topology, env).total_bytes)));
    segments.push_back(memory->back()->data());
  }
  return std::make_unique<FabricParts>(std::move(topology), env, RailChoice(), std::move(segments), memory,
                                       std::make_unique<InprocTransport>(hub, rank));
}

// Waits for one request.
inline Status Wait(const std::function<void(DoneCallback)>& submit) {
  auto done = std::make_shared<std::promise<Status>>();
  std::future<Status> result = done->get_future();
  submit([done](const Status& status) { done->set_value(status); });
  return result.get();
}

// Sums a float32 tensor over the ranks, in place.
inline Status Sum(Session& session, const std::string& name, std::vector<float>* data) {
  return Wait([&](DoneCallback done) {
    const TensorRef tensor = {DType::kFloat32, {static_cast<int64_t>(data->size())}, data->data(), data->data()};
    session.Submit({RequestKind::kAllreduce, name, {tensor}, {ReduceOp::kSum}}, done);
  });
}

// Calls body(rank, session) in a thread for each rank of a job with small chunks.
inline void AsRanks(const Hosts& hosts, const std::function<void(int, Session&)>& body) {
  ClusterOptions options;
  options.host_of_rank = hosts;
  options.chunk_bytes = 8192;
  options.bucket_bytes = 32768;
  const std::unique_ptr<InprocCluster> cluster = Value(StartInprocCluster(options));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < cluster->size(); ++rank) {
    threads.emplace_back([&, rank] { body(rank, cluster->session(rank)); });
  }
  for (std::thread& thread : threads) thread.join();
}

// One node, several, uneven ones, and hosts that take turns.
inline const std::vector<Hosts>& Layouts() {
  static const std::vector<Hosts> layouts = {{"a", "a"},      {"a", "b"},           {"a", "a", "a", "a"},
                                             {"a", "a", "b"}, {"a", "b", "a", "b"}, {"a", "a", "b", "b", "c", "c"}};
  return layouts;
}

}  // namespace smddp
