#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "native/members.h"
#include "native/ranks.h"
#include "runtime/session/engine_diagnostics.h"

namespace smddp {
namespace {

TEST_CASE("engine diagnostics: counters say what was done and sent, and over which link") {
  AsRanks({"a", "a", "b", "b"}, [](int rank, Session& session) {
    const SessionStats before = session.diagnostics().Stats();
    CHECK(before.named_requests == 0);
    CHECK(before.ended_rank == -1);
    CHECK(before.arena_bytes > 0);
    std::vector<float> data = ValuesOf(rank, 40'000);
    for (int i = 0; i < 3; ++i) CHECK(Sum(session, "x" + std::to_string(i), &data).ok());
    const SessionStats after = session.diagnostics().Stats();
    CHECK(after.named_requests == 3);
    CHECK(after.steps == 0);
    CHECK(after.planned_buckets == 0);
    // Of each sum half of the data goes to the mate and half to the other node, and their sums come and go as well.
    CHECK(after.rail_bytes_sent - before.rail_bytes_sent >= 3 * 80'000);
    CHECK(after.rail_bytes_sent - before.rail_bytes_sent <= 3 * 90'000);
    CHECK(after.node_bytes_sent - before.node_bytes_sent >= 3 * 160'000);
    CHECK(after.control_messages > before.control_messages);
    CHECK(after.control_bytes - before.control_bytes > after.control_messages - before.control_messages);
  });
}

TEST_CASE("engine diagnostics: on one node there is no link to report") {
  AsRanks({"a", "a"}, [](int, Session& session) {
    CHECK(session.diagnostics().Stats().rail_latency_us == 0);
    CHECK(session.diagnostics().Stats().rail_bandwidth_mbps == 0);
    CHECK(AlgorithmByName(session.diagnostics().RailAlgorithm(1 << 20, DType::kFloat32)) != nullptr);
  });
}

TEST_CASE("engine diagnostics: the event log has the requests between start and stop, in their order") {
  AsRanks({"a", "b"}, [](int rank, Session& session) {
    std::vector<float> data = ValuesOf(rank, 2000);
    CHECK(Sum(session, "before", &data).ok());
    session.diagnostics().TraceStart();
    CHECK(Sum(session, "first", &data).ok());
    CHECK(Sum(session, "second", &data).ok());
    const std::vector<TraceEvent> events = session.diagnostics().TraceStop();
    CHECK(Sum(session, "after", &data).ok());
    std::vector<std::string> of_ops;
    for (const TraceEvent& event : events) {
      CHECK(event.name != "before");
      if (event.what == TraceWhat::kOpAnnounced || event.what == TraceWhat::kOpStart ||
          event.what == TraceWhat::kOpDone) {
        of_ops.push_back(std::string(NameOf(event.what)) + " " + event.name);
      }
    }
    CHECK(of_ops == std::vector<std::string>{"op_announced first", "op_start first", "op_done first",
                                             "op_announced second", "op_start second", "op_done second"});
    CHECK(std::is_sorted(events.begin(), events.end(),
                         [](const TraceEvent& a, const TraceEvent& b) { return a.time_ns < b.time_ns; }));
    CHECK(session.diagnostics().TraceStop().empty());
  });
}

TEST_CASE("engine diagnostics: an uncaught exception is the error of all ranks, which print it and say so") {
  std::atomic<int> here{0};
  AsRanks({"a", "a", "b"}, [&here](int rank, Session& session) {
    std::vector<float> data(10, 1);
    CHECK(session.diagnostics().Raised().elsewhere.empty());
    CHECK(Sum(session, "all are here", &data).ok());
    ++here;
    const Deadline all = Deadline::After(20);  // else the exception is the error of a sum that is still under way
    while (here < 3 && !all.passed()) std::this_thread::yield();
    if (rank == 1) session.diagnostics().Raise("ValueError: no such file");
    const Status status = Sum(session, "never", &data);
    CHECK_FALSE(status.ok());
    if (rank == 1) session.diagnostics().TellTracebackPrinted();
    const auto told = [&] {
      const RaisedState state = session.diagnostics().Raised();
      return rank == 1 ? state.others_acknowledged : state.shown_elsewhere;
    };
    const Deadline deadline = Deadline::After(20);
    while (!told() && !deadline.passed()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const RaisedState state = session.diagnostics().Raised();
    CHECK(told());
    CHECK(state.elsewhere.empty() == (rank == 1));
    if (rank != 1) CHECK(Has(state.elsewhere, "ValueError: no such file"));
    if (rank != 1) CHECK(Has(status.message(), "Rank 1"));
  });
}

TEST_CASE("engine diagnostics: one timeline at a time; its parts are closed when it has been stopped") {
  std::string folder = (std::filesystem::temp_directory_path() / "smddp-timeline-XXXXXX").string();
  REQUIRE(mkdtemp(folder.data()) != nullptr);
  const std::string path = folder + "/timeline.json";
  AsRanks({"a", "b"}, [&](int rank, Session& session) {
    std::vector<float> data = ValuesOf(rank, 3000);
    CHECK(session.diagnostics().StopTimeline().path.empty());
    if (rank == 0) {
      CHECK(session.diagnostics().StartTimeline(path, false).ok());
      const Status again = session.diagnostics().StartTimeline(path + "2", false);
      CHECK(again.reason() == Reason::kBadArgument);
      CHECK(Has(again.message(), "Received: '" + path + "2'"));
    }
    for (int i = 0; i < 2; ++i) CHECK(Sum(session, "written " + std::to_string(i), &data).ok());
    if (rank == 0) {
      const TimelineParts parts = session.diagnostics().StopTimeline();
      CHECK(parts.path == path);
      CHECK(parts.ranks == std::vector<int>{1});
      for (const std::string& file : {path, path + ".rank1.part"}) {
        std::ifstream in(file);
        std::stringstream text;
        text << in.rdbuf();
        CHECK(Has(text.str(), "written 1"));
      }
      CHECK_FALSE(session.diagnostics().StartTimeline(folder + "/none/timeline.json", false).ok());
      CHECK(session.diagnostics().StartTimeline(path, false).ok());  // one that could not start is not under way
    }
    CHECK(Sum(session, "together", &data).ok());
  });
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace smddp
