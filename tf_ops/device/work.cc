#include "device/work.h"

namespace smddp {

Result<std::shared_ptr<const DeviceWork>> DeviceWork::Begin(Device& device, DeviceStream stream) {
  SMDDP_ASSIGN_OR_RETURN(DeviceEvent ready, device.MakeEvent());
  const std::shared_ptr<const DeviceWork> work(new DeviceWork(device, stream, ready));
  SMDDP_RETURN_IF_ERROR(device.Record(ready, stream));
  return work;
}

DeviceWork::~DeviceWork() { device_.DestroyEvent(ready_); }

}  // namespace smddp
