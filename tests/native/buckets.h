// Buckets of gradients on QueuedDevices, and the tasks that reduce them.
#pragma once

#include <memory>
#include <vector>

#include "collectives/device/methods/methods.h"
#include "native/fabrics.h"
#include "native/members.h"
#include "native/queued_device.h"

namespace smddp {

// One rank's bucket of float32 tensors: the first ones on the device, the last `on_host` in host memory.
struct DeviceBucketOf {
  // The framework computes its tensors after the call; values differ by rank and position.
  DeviceBucketOf(const Fabric& fabric, QueuedDevice& device, const std::vector<int64_t>& elements, int on_host = 0,
                 Scaling after = {})
      : device(device), context(std::make_unique<DeviceContext>(fabric, device)), framework(device) {
    CHECK(context->Make().ok());
    int64_t total = 0;
    for (const int64_t each : elements) total += each;
    const std::vector<float> values = ValuesOf(fabric.topology.rank(), total);
    const size_t on_device = elements.size() - on_host;
    std::vector<Piece> pieces;
    tensors.resize(elements.size());
    auto first = values.begin();
    for (size_t i = 0; i < elements.size(); ++i, first = first + elements[i - 1]) {
      tensors[i].assign(elements[i], -1);
      pieces.push_back({tensors[i].data(), tensors[i].data(), elements[i]});
      const std::vector<float> mine(first, first + elements[i]);
      if (i >= on_device) {
        std::copy(mine.begin(), mine.end(), tensors[i].begin());
      } else {
        framework.Put([to = tensors[i].data(), mine] { std::copy(mine.begin(), mine.end(), to); });
      }
    }
    const auto work = framework.Begin();
    for (size_t i = 0; i < elements.size(); ++i) call.works.push_back(i < on_device ? work : nullptr);
    view = std::make_unique<FusedView>(DType::kFloat32, DType::kFloat32, pieces, Scaling(), after, CpuCompute());
    call.call.operation = 3;
    call.call.view = view.get();
  }
  ~DeviceBucketOf() { device.late = false; }
  // All tensors one behind the other.
  std::vector<float> all() const {
    std::vector<float> values;
    for (const std::vector<float>& tensor : tensors) values.insert(values.end(), tensor.begin(), tensor.end());
    return values;
  }
  // What the framework reads from now on.
  void Read() {
    framework.Put([this] { read = all(); });
  }

  QueuedDevice& device;
  std::unique_ptr<DeviceContext> context;
  Framework framework;
  std::vector<std::vector<float>> tensors;
  std::unique_ptr<FusedView> view;
  DeviceCall call;
  std::vector<float> read;
};

inline const AllreduceAlgorithm& Direct() { return *Algorithms().front(); }

}  // namespace smddp
