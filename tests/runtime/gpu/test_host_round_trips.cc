#include "native/bus.h"
#include "native/members.h"
#include "native/queued_device.h"
#include "runtime/gpu/host_round_trips.h"

namespace smddp {
namespace {

// A request on one GPU whose work is late; `host` is what the host is asked to do.
struct Request {
  Request() {
    framework.Put([this] {
      const std::vector<float> values = ValuesOf(3, 100);
      std::copy(values.begin(), values.end(), input.begin());
    });
    device.late = true;
  }
  // With a result of so many floats.
  void Begin(size_t results) {
    output.assign(results, -1);
    const TensorRef tensor = {DType::kFloat32, {100}, input.data(), output.data(), framework.Begin()};
    trips.Begin(
        "x", {{tensor}, {results * sizeof(float)}},
        [this](std::vector<TensorRef> tensors, DoneCallback done) {
          host = std::move(tensors);
          finish = std::move(done);
        },
        [this](const Status& status) { answers.push_back(status); });
  }
  // Lets the GPU run, and the engine see it.
  void Down() {
    device.Run();
    Value(bus.tasks.Step());
  }
  QueuedDevice device;
  Framework framework{device};
  NotedBus bus{0, {"a"}};
  HostRoundTrips trips{bus};
  std::vector<float> input = std::vector<float>(100, -2), output;
  std::vector<TensorRef> host;
  DoneCallback finish;
  std::vector<Status> answers;
};

TEST_CASE("host round trips: the host gets what the framework has computed, and its next work gets the result") {
  for (const size_t results : {100, 250}) {  // in place, and with memory of its own
    CAPTURE(results);
    Request request;
    request.Begin(results);
    Value(request.bus.tasks.Step());
    CHECK(request.host.empty());  // the GPU has not come to it
    CHECK(request.trips.OldestNs() < Component::kNever);
    request.Down();
    REQUIRE(request.host.size() == 1);
    CHECK((request.host[0].device == nullptr));
    CHECK(request.host[0].shape == std::vector<int64_t>{100});
    CHECK((request.host[0].input == request.host[0].output) == (results == 100));
    const auto* const got = static_cast<const float*>(request.host[0].input);
    CHECK(std::vector<float>(got, got + 100) == ValuesOf(3, 100));
    const std::vector<float> result = ValuesOf(5, static_cast<int64_t>(results));
    std::copy(result.begin(), result.end(), static_cast<float*>(request.host[0].output));
    CHECK(request.answers.empty());
    request.finish(Status::Ok());
    REQUIRE(request.answers.size() == 1);
    CHECK(request.answers[0].ok());
    CHECK(request.trips.OldestNs() == Component::kNever);
    std::vector<float> read;
    request.framework.Put([&] { read = request.output; });
    CHECK(request.output[0] == -1);  // the copy is not complete yet
    request.device.Run();
    CHECK(read == result);
  }
}

TEST_CASE("host round trips: an error of the host is the caller's, and nothing is copied back") {
  Request request;
  request.Begin(100);
  request.Down();
  request.finish(Status(Reason::kDisagreement, "shapes differ"));
  REQUIRE(request.answers.size() == 1);
  CHECK(request.answers[0].message() == "shapes differ");
  request.device.Run();
  CHECK(request.output == std::vector<float>(100, -1));
}

TEST_CASE("host round trips: tensors in two kinds of memory, or on two GPUs, are refused") {
  Request request;
  QueuedDevice other(4);
  Framework there(other);
  const TensorRef on_gpu = {
      DType::kFloat32, {100}, request.input.data(), request.input.data(), request.framework.Begin()};
  TensorRef elsewhere = on_gpu, in_host_memory = on_gpu;
  in_host_memory.device = nullptr;
  elsewhere.device = there.Begin();
  const auto refused = [&](const std::vector<TensorRef>& tensors) {
    request.answers.clear();
    request.trips.Begin(
        "y", {tensors, std::vector<size_t>(tensors.size(), 400)},
        [](std::vector<TensorRef>, const DoneCallback&) { FAIL("begun"); },
        [&](const Status& status) { request.answers.push_back(status); });
    return request.answers.empty() ? "" : request.answers[0].message();
  };
  CHECK(Has(refused({on_gpu, in_host_memory}), "'y' has some tensors in host memory and others on a GPU"));
  request.Begin(100);
  CHECK(Has(refused({elsewhere}), "A tensor is on GPU 4, earlier tensors are on GPU 0."));
  request.Down();
  request.finish(Status::Ok());
  CHECK(request.trips.OldestNs() == Component::kNever);
}

}  // namespace
}  // namespace smddp
