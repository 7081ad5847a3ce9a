#include "native/testing.h"
#include "runtime/timeline/timeline_text.h"

namespace smddp {
namespace {

using Lines = std::vector<std::string>;

// "B NEGOTIATE_ALLREDUCE 1 0.500" for each event, without the lines that name processes and tracks.
Lines EventsOf(const std::string& text) {
  Lines events;
  const auto field = [](const std::string& line, const std::string& name) {
    const size_t at = line.find("\"" + name + "\":") + name.size() + 3;
    const bool quoted = line[at] == '"';
    const size_t end = line.find_first_of(quoted ? "\"" : ",}", at + 1);
    return line.substr(at + quoted, end - at - quoted);
  };
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    REQUIRE(end != std::string::npos);  // complete lines
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    CHECK(line.front() == '{');
    CHECK(line.back() == '}');
    if (field(line, "ph") == "M") continue;
    events.push_back(field(line, "ph") + " " + field(line, "name") + " " + field(line, "tid") + " " +
                     field(line, "ts"));
  }
  return events;
}

TraceEvent Event(TraceWhat what, const std::string& name, int index, int64_t us, const std::string& detail = "") {
  return {what, name, index, 1'000'000 + us * 1000, detail};
}

TimelineText Text(bool mark_cycles = false) {
  TimelineText text(3, {1'000'000, 5'000'000, mark_cycles, "node1"});
  CHECK(Has(text.Take(), "rank 3 on node1"));
  return text;
}

TEST_CASE("timeline: a request waits and runs on its own track") {
  TimelineText text = Text();
  text.Add(Event(TraceWhat::kOpAnnounced, "loss", 0, 1, "ALLREDUCE"));
  text.Add(Event(TraceWhat::kOpStart, "loss", 0, 5, "ALLREDUCE"));
  text.Add(Event(TraceWhat::kOpDone, "loss", 0, 9));
  const std::string written = text.Take();
  CHECK(Has(written, "\"name\":\"loss\""));
  CHECK(Has(written, "\"pid\":3"));
  CHECK(EventsOf(written) == Lines{"B NEGOTIATE_ALLREDUCE 1 1.000", "E NEGOTIATE_ALLREDUCE 1 5.000",
                                   "B ALLREDUCE 1 5.000", "B MPI_ALLREDUCE 1 5.000", "E MPI_ALLREDUCE 1 9.000",
                                   "E ALLREDUCE 1 9.000"});
  CHECK(text.Take().empty());
}

TEST_CASE("timeline: the same activity twice at a time has two tracks, and begin and end nest") {
  TimelineText text = Text();
  for (const int us : {1, 2}) text.Add(Event(TraceWhat::kOpAnnounced, "x", 0, us, "BROADCAST"));
  text.Add(Event(TraceWhat::kOpStart, "x", 0, 3, "BROADCAST"));
  text.Add(Event(TraceWhat::kOpDone, "x", 0, 4));
  const std::string written = text.Take();
  CHECK(Has(written, "x (2)"));
  CHECK(EventsOf(written) == Lines{"B NEGOTIATE_BROADCAST 1 1.000", "B NEGOTIATE_BROADCAST 2 2.000",
                                   "E NEGOTIATE_BROADCAST 1 3.000", "B BROADCAST 1 3.000", "B MPI_BCAST 1 3.000",
                                   "E MPI_BCAST 1 4.000", "E BROADCAST 1 4.000"});
}

TEST_CASE("timeline: what began before it is shown from where it is seen") {
  TimelineText text = Text();
  text.Add(Event(TraceWhat::kTensorDone, "tape", 2, 1));  // nothing to end
  text.Add(Event(TraceWhat::kBucketStart, "tape", 0, -5));
  CHECK(EventsOf(text.Take()) == Lines{"B ALLREDUCE 1 0.000", "B MPI_ALLREDUCE 1 0.000"});
}

TEST_CASE("timeline: gradients and stages have their names") {
  TimelineText text = Text();
  text.Add(Event(TraceWhat::kTensorReady, "tape", 2, 1, "dense/kernel"));
  text.Add(Event(TraceWhat::kTensorReady, "tape", 3, 2));
  text.Add(Event(TraceWhat::kStageBegin, "tape", 0, 3, "RAIL_ALLREDUCE"));
  const std::string written = text.Take();
  CHECK(Has(written, "dense/kernel"));
  CHECK(Has(written, "tape.3"));
  CHECK(Has(written, "tape, bucket 0, RAIL_ALLREDUCE"));
  CHECK(EventsOf(written).back() == "B RAIL_ALLREDUCE 3 3.000");
}

TEST_CASE("timeline: a training step computes, then reduces") {
  TimelineText text = Text();
  text.Add(Event(TraceWhat::kStepGradients, "tape", 1, 1));
  text.Add(Event(TraceWhat::kStepDone, "tape", 1, 2));
  text.Add(Event(TraceWhat::kStepGradients, "tape", 2, 4));
  const std::string written = text.Take();
  CHECK(Has(written, "training steps"));
  CHECK(EventsOf(written) == Lines{"B STEP 1 1.000", "B GRADIENTS 1 1.000", "E GRADIENTS 1 2.000", "E STEP 1 2.000",
                                   "B STEP 1 2.000", "B COMPUTATION 1 2.000", "E COMPUTATION 1 4.000",
                                   "B GRADIENTS 1 4.000"});
}

TEST_CASE("timeline: the end ends all that is open, and says what is missing") {
  TimelineText text = Text();
  text.Add(Event(TraceWhat::kOpAnnounced, "x", 0, 1, "BARRIER"));
  text.Take();
  text.Close(1'000'000 + 8000, 12);
  const std::string written = text.Take();
  CHECK(EventsOf(written) == Lines{"E NEGOTIATE_BARRIER 1 8.000", "i EVENTS_DROPPED 0 8.000"});
  CHECK(Has(written, "\"count\":12"));
}

TEST_CASE("timeline: cycles are marked where that is asked for") {
  for (const bool mark : {false, true}) {
    TimelineText text = Text(mark);
    text.Add(Event(TraceWhat::kCycleStart, "", 0, 1));
    CHECK(EventsOf(text.Take()).size() == (mark ? 1 : 0));
  }
}

TEST_CASE("timeline: names that are no JSON are replaced or cut") {
  TimelineText text = Text();
  text.Add(Event(TraceWhat::kOpAnnounced, "a\"b\\c\n\xff\xc3\xa4", 0, 1, "BARRIER"));
  CHECK(Has(text.Take(), "\"name\":\"a\\\"b\\\\c??\xc3\xa4\""));
  text.Add(Event(TraceWhat::kOpAnnounced, std::string(5000, 'x'), 0, 1, "BARRIER"));
  CHECK(text.Take().size() < 1000);
}

}  // namespace
}  // namespace smddp
