// A whole engine that talks to a rank which sends what it likes. The engine must answer every request, and end.
#include <atomic>
#include <memory>
#include <numeric>
#include <thread>

#include "core/check.h"
#include "core/process/log.h"
#include "fuzz/input.h"
#include "inproc/hub.h"
#include "runtime/bootstrap/bootstrap.h"
#include "runtime/session/engine_session.h"
#include "transport/shm/segment.h"

namespace {

using smddp::Result;
using smddp::Status;
using smddp::TensorRef;

struct Memory {
  float data[3000] = {};
  std::vector<float> gathered, received;
  int last = 0;
};

class Requests {
 public:
  ~Requests() { SMDDP_CHECK_OP(open_.load(), ==, 0); }

  void Submit(smddp::EngineSession& session) {
    const TensorRef small = {smddp::DType::kFloat32, {4, 2}, memory_.data, memory_.data};
    const TensorRef large = {smddp::DType::kFloat32, {1000, 3}, memory_.data, memory_.data};
    const auto into = [](std::vector<float>* result, const std::vector<int64_t>& rows) -> Result<void*> {
      const int64_t total = std::accumulate(rows.begin(), rows.end(), int64_t{0});
      if (total > 100000) return Status(smddp::Reason::kNoResources, "too large");
      result->resize(static_cast<size_t>(total) * 2);
      return static_cast<void*>(result->data());
    };
    using smddp::RequestKind;
    session.Submit({RequestKind::kAllreduce, "a", {small}, {smddp::ReduceOp::kSum}}, done());
    session.Submit({RequestKind::kAllreduce, "b", {large}, {smddp::ReduceOp::kSum}}, done());
    smddp::Request broadcast(RequestKind::kBroadcast, "c", {large});
    broadcast.root = 1;
    session.Submit(std::move(broadcast), done());
    smddp::Request allgather(RequestKind::kAllgather, "d", {small});
    allgather.allocate = [=](int, const std::vector<int64_t>& rows) { return into(&memory_.gathered, rows); };
    session.Submit(std::move(allgather), done());
    smddp::Request alltoall(RequestKind::kAlltoall, "e", {small});
    alltoall.splits = {2, 2};
    alltoall.allocate = [=](int, const std::vector<int64_t>& rows) { return into(&memory_.received, rows); };
    session.Submit(std::move(alltoall), done());
    smddp::PlanSpec spec;
    spec.key = "p";
    spec.tensors = {{smddp::DType::kFloat32, {1000, 3}}, {smddp::DType::kFloat32, {4, 2}}};
    spec.op = smddp::ReduceOp::kSum;
    const int plan = *session.RegisterPlan(spec);
    session.ReducePlanned({plan, 0}, large, done());
    session.ReducePlanned({plan, 1}, small, done());
  }
  void Join(smddp::EngineSession& session) { session.Join(&memory_.last, done()); }

 private:
  smddp::DoneCallback done() {
    ++open_;
    return [this](const Status&) { --open_; };
  }
  Memory memory_;
  std::atomic<int> open_{0};
};

// Rank 0 says where the parts of a timeline go: not to files of this machine.
bool NamesAFile(const std::string& bytes) {
  const bool start = bytes.size() > 1 && bytes[0] == static_cast<char>(smddp::ControlType::kTimeline) && bytes[1] == 1;
  return start && bytes.find("/nonexistent/folder") != 23;
}

// Lets the engine work on what it was given.
void Settle(smddp::EngineSession& session) {
  for (int64_t before = -1, turns = session.turns(); before != turns;) {
    before = turns;
    sched_yield();
    turns = session.turns();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  smddp::SetLog(smddp::LogLevel::kOff, 0);
  fuzz::Input input(data, size);
  const uint8_t kind = input.Take<uint8_t>();
  const int rank = kind & 1, other = 1 - rank;
  const bool same_host = (kind & 2) != 0;
  smddp::Env env;
  env.chunk_bytes = 4096;
  env.bucket_bytes = 4096;
  env.gradient_order = "observed";
  smddp::Topology topology = *smddp::Topology::Build(rank, {"a", same_host ? "a" : "b"});
  const auto layout = smddp::FabricParts::LayoutFor(topology, env);
  auto memory = std::make_shared<std::vector<std::unique_ptr<smddp::Segment>>>();
  std::vector<std::byte*> segments;
  for (int member = 0; member < topology.local_size(); ++member) {
    memory->push_back(std::move(*smddp::Segment::Private(layout.total_bytes)));
    segments.push_back(memory->back()->data());
  }
  smddp::InprocHub hub(2);
  auto parts = std::make_unique<smddp::FabricParts>(topology, env, smddp::RailChoice(), segments, memory,
                                                    std::make_unique<smddp::InprocTransport>(hub, rank));
  hub.SetDoorbell(rank, &parts->node().doorbell());
  std::unique_ptr<smddp::NodeChannel> mate;
  if (same_host) mate = std::make_unique<smddp::NodeChannel>(other, layout, segments);
  std::unique_ptr<smddp::NodeControl> messages;
  if (same_host) messages = std::make_unique<smddp::NodeControl>(*mate);
  smddp::PlanRegistry plans;
  Requests requests;
  smddp::EngineSession session(std::move(parts), env, plans);
  requests.Submit(session);
  if ((kind & 4) != 0) requests.Join(session);
  while (!input.empty()) {
    const uint32_t tag = input.Take<uint8_t>() % 2 == 0 ? 0 : input.Take<uint32_t>();
    std::string bytes = input.TakeText();
    if (NamesAFile(bytes)) continue;
    if (!same_host) {
      hub.Deliver(rank, {other, tag == 0, tag, 0, std::move(bytes)});
    } else if (tag == 0) {
      messages->Post(rank, std::move(bytes));
    } else {
      smddp::Slot slot;
      if (!mate->Reserve(smddp::Pool::kCopy, &slot)) break;
      bytes.resize(std::min(bytes.size(), slot.memory.size));
      std::memcpy(slot.memory.data, bytes.data(), bytes.size());
      mate->Publish(slot, {tag >> 5, static_cast<uint8_t>(tag >> 3 & 3), static_cast<uint16_t>(tag & 7)}, bytes.size(),
                    {rank});
      mate->Release(&slot);
    }
    if ((kind & 8) != 0) Settle(session);
  }
  const std::string goodbye = Encode(smddp::Goodbye{true});  // else it waits until its own has been taken
  same_host ? messages->Post(rank, goodbye) : hub.Deliver(rank, {other, true, 0, 0, goodbye});
  // The mate takes what the engine sends, as long as that lives.
  std::atomic<bool> over{false};
  std::thread taking([&] {
    while (same_host && !over && mate->Progress().ok() && messages->Progress().ok()) sched_yield();
  });
  session.Stop();
  over = true;
  taking.join();
  return 0;
}
