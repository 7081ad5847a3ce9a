#include "inproc/hub.h"
#include "native/bus.h"
#include "runtime/engine/message_router.h"

namespace smddp {
namespace {

using Texts = std::vector<std::string>;

// Notes what it gets.
struct Reader : Component {
  Status OnMessage(int from, std::string_view message) override {
    got.emplace_back(from, message.size());
    return answer;
  }
  void OnDeparture(int rank) override { left.push_back(rank); }
  std::vector<std::pair<int, size_t>> got;
  std::vector<int> left;
  Status answer;
};

std::string Verdict5() {
  Verdict verdict;
  verdict.name = "x";
  return Encode(verdict);
}
std::string Order(int plan) {
  PlanOrder order;
  order.plan = plan;
  order.order = {1, 0};
  return Encode(order);
}

std::vector<std::unique_ptr<InprocTransport>> Transports(InprocHub* hub) {
  std::vector<std::unique_ptr<InprocTransport>> transports;
  for (int rank = 0; rank < 5; ++rank) transports.push_back(std::make_unique<InprocTransport>(*hub, rank));
  return transports;
}

// The router of rank 2 of five on two nodes; the others are transports.
struct Job {
  Job() {
    router.Add(ControlType::kVerdict, &reader, MessageRouter::Delivery::kUntilFailure);
    router.Add(ControlType::kPlanOrder, &always, MessageRouter::Delivery::kAlways);
  }
  void FromOther(int rank, const std::string& message) {
    CHECK(transports[rank]->Post(2, message).ok());
    Value(transports[2]->Progress());
    bool worked = false;
    CHECK(router.Read(&worked));
    worked_ = worked;
  }
  // What has arrived at that rank, one text for each message.
  Texts At(int rank) {
    Texts texts;
    Message message;
    Value(transports[rank]->Progress());
    while (transports[rank]->Poll(&message)) texts.push_back(message.bytes);
    return texts;
  }
  InprocHub hub{5};
  std::vector<std::unique_ptr<InprocTransport>> transports = Transports(&hub);
  NotedBus bus{2, {"a", "a", "b", "b", "b"}};
  Departures departures{bus.topology()};
  Heartbeat heartbeat{bus.topology(), departures, 10};
  Reader reader, always;
  std::vector<Component*> components = {&reader, &always};
  MessageRouter router{bus, *transports[2], departures, heartbeat, components};
  bool worked_ = false;
};

TEST_CASE("message router: what is posted in a round is one message for each rank, in its order") {
  Job job;
  job.router.Post(0, "first");
  job.router.Post(3, "alone");
  job.router.Post(0, "second");
  CHECK(job.At(0).empty());
  job.router.Send();
  const Texts batch = job.At(0);
  REQUIRE(batch.size() == 1);
  CHECK(Unpack(batch[0]) == Texts{"first", "second"});
  CHECK(job.At(3) == Texts{"alone"});
  CHECK(job.router.messages() == 2);
  CHECK(job.router.bytes() == static_cast<int64_t>(batch[0].size()) + 5);
}

TEST_CASE("message router: messages reach the reader of their type, and those in a batch each one") {
  Job job;
  job.FromOther(1, Encode(Batch{{Verdict5(), Order(7), Verdict5()}}));
  CHECK(job.reader.got == std::vector<std::pair<int, size_t>>(2, {1, Verdict5().size()}));
  CHECK(job.always.got == std::vector<std::pair<int, size_t>>{{1, Order(7).size()}});
  CHECK(job.worked_);
  CHECK(job.bus.failure().ok());
  job.FromOther(4, Encode(HeartbeatMessage()));
  CHECK_FALSE(job.worked_);
  bool worked = false;
  CHECK_FALSE(job.router.Read(&worked));
}

TEST_CASE("message router: a message of no type, or of one that nobody reads, ends the session for all") {
  for (const std::string& message : {std::string("\x7f?"), Encode(JoinOver())}) {
    Job job;
    job.FromOther(3, message);
    CHECK(Begins(job.bus.failure().message(), "Rank 3 sent an invalid control message"));
    CHECK(job.bus.told);
  }
  Job job;
  job.reader.answer = Status(Reason::kInternal, "I refuse");
  job.FromOther(3, Verdict5());
  CHECK(job.bus.failure().message() == "I refuse");
}

TEST_CASE("message router: after a failure only those readers get messages that want them always; none when closed") {
  Job job;
  Abort abort;
  abort.why = Status(Reason::kPeerLost, "Rank 1 is lost");
  job.FromOther(0, Encode(abort));
  CHECK(job.bus.failure().message() == "Rank 1 is lost");
  CHECK_FALSE(job.bus.told);  // the others have it
  job.FromOther(0, Verdict5());
  job.FromOther(0, Order(1));
  CHECK(job.reader.got.empty());
  CHECK(job.always.got.size() == 1);
  job.router.Close();
  job.FromOther(0, Order(1));
  CHECK(job.always.got.size() == 1);
}

TEST_CASE(
    "message router: a rank that has left gets nothing, all components hear of it, and one that breaks off fails") {
  Job job;
  Goodbye goodbye;
  goodbye.clean = true;
  goodbye.listens = true;
  CHECK(job.router.ended_rank() == -1);
  job.FromOther(4, Encode(goodbye));
  CHECK(job.router.ended_rank() == 4);
  CHECK(job.departures.has(4));
  CHECK(job.reader.left == std::vector<int>{4});
  CHECK(job.always.left == std::vector<int>{4});
  job.At(4);
  job.router.Post(4, "for nobody");
  job.router.Send();
  CHECK(job.At(4).empty());
  job.router.PostToReaders({2, 3, 4}, "it still reads this");  // not to itself
  CHECK(job.At(4) == Texts{"it still reads this"});
  CHECK(job.At(3).back() == "it still reads this");
  CHECK(job.bus.failure().ok());
  goodbye.clean = false;
  job.FromOther(0, Encode(goodbye));
  CHECK(Begins(job.bus.failure().message(), "Rank 0 ended its session"));
  CHECK(job.bus.failure().reason() == Reason::kPeerLeft);
}

TEST_CASE("message router: a clean goodbye goes to the node, and to those of other nodes that were written to") {
  Job job;
  job.router.Post(1, "x");
  job.router.Send();
  for (int rank = 0; rank < 5; ++rank) job.At(rank);
  Goodbye goodbye;
  goodbye.clean = goodbye.listens = true;
  job.router.SayGoodbye(goodbye);
  for (const int rank : {1, 3, 4}) {
    CAPTURE(rank);
    const Texts got = job.At(rank);
    REQUIRE(got.size() == 1);
    Goodbye read;
    REQUIRE(Decode(got[0], &read));
    CHECK(read.told == std::vector<int>{1});
  }
  Goodbye hard;
  job.router.SayGoodbye(hard);  // at once: to all
  for (const int rank : {0, 1, 3, 4}) CHECK(job.At(rank).back() == Encode(hard));
}

}  // namespace
}  // namespace smddp
