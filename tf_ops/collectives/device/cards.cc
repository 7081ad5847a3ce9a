#include "collectives/device/cards.h"

#include "core/wire.h"

namespace smddp {

const char* NameOf(DeviceStage stage) {
  constexpr const char* kNames[] = {"host", "ipc", "nccl"};
  return kNames[static_cast<int>(stage)];
}

std::string Encode(const DeviceCard& card) {
  WireWriter writer;
  writer.Put<uint8_t>(card.has_device ? 1 : 0);
  writer.Put<int32_t>(card.device.index);
  writer.PutText(card.device.name);
  writer.PutText(card.device.uuid);
  writer.PutText(card.device.bus_id);
  writer.Put<uint64_t>(card.device.bytes);
  writer.Put<int32_t>(card.device.processors);
  writer.Put<uint8_t>(card.device.can_export ? 1 : 0);
  writer.Put<int32_t>(card.visible);
  writer.PutText(card.wanted);
  writer.Put<int32_t>(card.group_version);
  writer.PutText(card.why_no_group);
  writer.PutText(card.group_id);
  writer.Put<uint8_t>(card.direct ? 1 : 0);
  return writer.Take();
}

bool Decode(std::string_view text, DeviceCard* card) {
  WireReader reader(text);
  card->has_device = reader.GetBool();
  card->device.index = reader.Get<int32_t>();
  card->device.name = reader.GetText();
  card->device.uuid = reader.GetText();
  card->device.bus_id = reader.GetText();
  card->device.bytes = reader.Get<uint64_t>();
  card->device.processors = reader.Get<int32_t>();
  card->device.can_export = reader.GetBool();
  card->visible = reader.Get<int32_t>();
  card->wanted = reader.GetText();
  card->group_version = reader.Get<int32_t>();
  card->why_no_group = reader.GetText();
  card->group_id = reader.GetText();
  card->direct = reader.GetBool();
  return reader.at_end();
}

}  // namespace smddp
