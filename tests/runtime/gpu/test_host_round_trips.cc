#include "native/bus.h"
#include "native/members.h"
#include "native/queued_device.h"
#include "runtime/gpu/host_round_trips.h"

namespace smddp {
namespace {

// A request on one GPU whose work is late; `host` is what the host is asked to do.
struct Request {
  Request() {
    framework.Compute(input.data(), ValuesOf(3, 100));
    device.late = true;
  }
  ~Request() {
    device.late = false;
    device.Run();
  }
  // With a result of so many floats.
  void Begin(size_t results) {
    output.assign(results, -1);
    const TensorRef tensor = {DType::kFloat32, {100}, input.data(), output.data(), framework.Mark()};
    trips.Begin(
        "x", {{tensor}, {results * sizeof(float)}},
        [this](std::vector<TensorRef> tensors, DoneCallback done) {
          host = std::move(tensors);
          finish = std::move(done);
        },
        [this](const Status& status) { answers.push_back(status); });
  }
  // Lets the engine look, after the GPU's last answer is forgotten.
  void Look() {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    Value(bus.tasks.Step());
  }
  // Lets the GPU run, and the engine see it.
  void Down() {
    device.Run();
    Look();
  }
  QueuedDevice device;
  Framework framework{device};
  NotedBus bus{0, {"a"}};
  Result<bool> may_allocate = true;
  HostRoundTrips trips{bus, [this] { return may_allocate; }};
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
    request.Look();
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
    CHECK(request.output[0] == -1);      // the copy is not complete yet
    request.device.oldest_first = true;  // the framework's stream before that of the copies
    request.device.Run();
    CHECK(read == result);
  }
}

TEST_CASE("host round trips: tensors of one request do not overlap, and those without elements are passed on") {
  Request request;
  std::vector<float> second = ValuesOf(8, 3), out(3, -1);
  const PooledEventPtr order = request.framework.Mark();
  request.output.assign(100, -1);
  const TensorRef first = {DType::kFloat32, {100}, request.input.data(), request.output.data(), order};
  const TensorRef none = {DType::kFloat32, {0}, nullptr, nullptr, order};
  const TensorRef last = {DType::kFloat32, {3}, second.data(), out.data(), order};
  request.trips.Begin(
      "three", {{first, none, last}, {400, 0, 12}},
      [&](std::vector<TensorRef> tensors, DoneCallback done) {
        request.host = std::move(tensors);
        request.finish = std::move(done);
      },
      [&](const Status& status) { request.answers.push_back(status); });
  request.Down();
  REQUIRE(request.host.size() == 3);
  CHECK(request.host[1].elements() == 0);
  for (const int index : {0, 2}) {
    const auto* const got = static_cast<const float*>(request.host[index].input);
    CHECK(std::vector<float>(got, got + 3) == (index == 0 ? std::vector<float>(ValuesOf(3, 3)) : ValuesOf(8, 3)));
    static_cast<float*>(request.host[index].output)[1] += 5000;
  }
  request.finish(Status::Ok());
  request.device.Run();
  CHECK(request.output[1] == ValuesOf(3, 100)[1] + 5000);
  CHECK(request.output[99] == ValuesOf(3, 100)[99]);
  CHECK(out[1] == ValuesOf(8, 3)[1] + 5000);
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

TEST_CASE("host round trips: the copies wait until pinned memory may be allocated") {
  Request request;
  request.may_allocate = false;
  request.Begin(100);
  for (int look = 0; look < 3; ++look) request.Down();
  CHECK(request.device.allocated == 0);
  CHECK(request.device.copied.empty());
  CHECK(request.host.empty());
  request.may_allocate = true;
  request.Look();
  CHECK(request.device.allocated == 1);
  CHECK(request.host.empty());
  request.Down();
  REQUIRE(request.host.size() == 1);
  request.finish(Status::Ok());
  request.may_allocate = false;
  request.device.Run();
  std::this_thread::sleep_for(std::chrono::microseconds(50));
  request.Begin(100);  // the memory is there
  request.Down();
  CHECK(request.device.allocated == 1);
  request.finish(Status::Ok());
  CHECK(request.answers.size() == 2);
}

TEST_CASE("host round trips: tensors in two kinds of memory, or on two GPUs, are refused, and so is a broken GPU") {
  Request request;
  QueuedDevice other(4);
  Framework there(other);
  const TensorRef on_gpu = {
      DType::kFloat32, {100}, request.input.data(), request.input.data(), request.framework.Mark()};
  TensorRef elsewhere = on_gpu, in_host_memory = on_gpu;
  in_host_memory.device = nullptr;
  elsewhere.device = there.Mark();
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
  request.device.broken = Status(Reason::kNoResources, "no pinned memory");
  CHECK(refused({on_gpu, on_gpu, on_gpu, on_gpu}) == "no pinned memory");
  request.device.broken = Status::Ok();
  CHECK(request.trips.OldestNs() == Component::kNever);
}

}  // namespace
}  // namespace smddp
