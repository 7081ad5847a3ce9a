#include "collectives/device/rank_device_info.h"

#include "core/wire.h"

namespace smddp {

const char* NameOf(DeviceMethod method) {
  constexpr const char* kNames[] = {"host", "ipc", "nccl"};
  return kNames[static_cast<int>(method)];
}

std::string Encode(const RankDeviceInfo& info) {
  WireWriter writer;
  writer.Put<uint8_t>(info.has_device ? 1 : 0);
  writer.Put<int32_t>(info.device.index);
  writer.PutText(info.device.name);
  writer.PutText(info.device.uuid);
  writer.PutText(info.device.bus_id);
  writer.Put<uint64_t>(info.device.bytes);
  writer.Put<int32_t>(info.device.processors);
  writer.Put<uint8_t>(info.device.can_export ? 1 : 0);
  writer.Put<int32_t>(info.visible);
  writer.PutText(info.wanted);
  writer.Put<int32_t>(info.group_version);
  writer.PutText(info.why_no_group);
  writer.PutText(info.group_id);
  writer.Put<uint8_t>(info.direct ? 1 : 0);
  return writer.Take();
}

bool Decode(std::string_view text, RankDeviceInfo* info) {
  WireReader reader(text);
  info->has_device = reader.GetBool();
  info->device.index = reader.Get<int32_t>();
  info->device.name = reader.GetText();
  info->device.uuid = reader.GetText();
  info->device.bus_id = reader.GetText();
  info->device.bytes = reader.Get<uint64_t>();
  info->device.processors = reader.Get<int32_t>();
  info->device.can_export = reader.GetBool();
  info->visible = reader.Get<int32_t>();
  info->wanted = reader.GetText();
  info->group_version = reader.Get<int32_t>();
  info->why_no_group = reader.GetText();
  info->group_id = reader.GetText();
  info->direct = reader.GetBool();
  return reader.at_end();
}

}  // namespace smddp
