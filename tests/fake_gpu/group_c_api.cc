// DeviceGroup for tests, as C functions. What they return is 0 or more, or not null, unless there was an error;
// fake_gpu_error says which.
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "c_api.h"
#include "device/group.h"
#include "groups.h"

using smddp::DeviceGroup;
using smddp::DeviceGroupLibrary;
using smddp::DType;
using smddp::GroupCall;
using smddp::Result;

// Null path: what SMDDP_NCCL_LIBRARY was when the plug-in was made.
SMDDP_EXPORT void* fake_gpu_load_groups(const char* path) {
  const Result<DeviceGroupLibrary*> library =
      path != nullptr ? smddp::fake::LoadGroups(path) : smddp::fake::ThePlugin().Groups();
  return Noted(library, static_cast<DeviceGroupLibrary*>(nullptr));
}
SMDDP_EXPORT int fake_gpu_group_version(void* library) { return static_cast<DeviceGroupLibrary*>(library)->version(); }
// As text: the bytes in hexadecimal digits.
SMDDP_EXPORT int fake_gpu_group_id(void* library, char* into, size_t room) {
  Result<std::string> id = static_cast<DeviceGroupLibrary*>(library)->MakeId();
  if (!id.ok()) return Noted(id.status());
  std::string digits;
  for (const char byte : *id) {
    for (const int half : {static_cast<unsigned char>(byte) >> 4, byte & 15}) digits += "0123456789abcdef"[half];
  }
  return Text(digits, into, room);
}
SMDDP_EXPORT void* fake_gpu_join(void* library, const char* id, int size, int member, int device) {
  std::string bytes;
  for (size_t i = 0; i + 1 < std::strlen(id); i += 2) {
    bytes += static_cast<char>(std::strtol(std::string(id + i, 2).c_str(), nullptr, 16));
  }
  Result<std::unique_ptr<DeviceGroup>> joined =
      static_cast<DeviceGroupLibrary*>(library)->Join(bytes, size, member, At(device));
  return joined.ok() ? joined->release() : (Noted(joined.status()), nullptr);
}
SMDDP_EXPORT int fake_gpu_group_ready(void* group) {
  const Result<bool> ready = static_cast<DeviceGroup*>(group)->Ready();
  return ready.ok() ? ready.value() : Noted(ready.status());
}
SMDDP_EXPORT int fake_gpu_group_health(void* group) { return Noted(static_cast<DeviceGroup*>(group)->Health()); }
namespace {

int CallOne(void* group, GroupCall::Kind kind, void* into, const void* from, long long each, int dtype, void* stream) {
  return Noted(static_cast<DeviceGroup*>(group)->Call({{kind, into, from, each, static_cast<DType>(dtype)}}, stream));
}

}  // namespace

SMDDP_EXPORT int fake_gpu_allreduce(void* group, void* into, const void* from, long long each, int dtype,
                                    void* stream) {
  return CallOne(group, GroupCall::Kind::kAllreduce, into, from, each, dtype, stream);
}
SMDDP_EXPORT int fake_gpu_reduce_scatter(void* group, void* into, const void* from, long long each, int dtype,
                                         void* stream) {
  return CallOne(group, GroupCall::Kind::kReduceScatter, into, from, each, dtype, stream);
}
SMDDP_EXPORT int fake_gpu_allgather(void* group, void* into, const void* from, long long each, int dtype,
                                    void* stream) {
  return CallOne(group, GroupCall::Kind::kAllgather, into, from, each, dtype, stream);
}
// In place, of `count` buffers in one launch.
SMDDP_EXPORT int fake_gpu_allreduce_together(void* group, void** buffers, const long long* each, int count, int dtype,
                                             void* stream) {
  std::vector<GroupCall> calls;
  for (int i = 0; i < count; ++i) {
    calls.push_back({GroupCall::Kind::kAllreduce, buffers[i], buffers[i], each[i], static_cast<DType>(dtype)});
  }
  return Noted(static_cast<DeviceGroup*>(group)->Call(calls, stream));
}
SMDDP_EXPORT void fake_gpu_group_abort(void* group) { static_cast<DeviceGroup*>(group)->Abort(); }
SMDDP_EXPORT void fake_gpu_leave(void* group) { delete static_cast<DeviceGroup*>(group); }
