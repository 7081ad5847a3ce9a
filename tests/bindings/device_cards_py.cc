// Test access to what ranks' cards lead to (collectives/device/cards.h).
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "collectives/device/cards.h"
#include "python/bindings.h"

namespace nb = nanobind;

namespace smddp {
namespace {

DeviceCard CardOf(const nb::dict& fields) {
  DeviceCard card;
  const auto text = [&](const char* name, std::string* into) {
    if (fields.contains(name)) *into = nb::cast<std::string>(fields[name]);
  };
  const auto number = [&](const char* name, int* into) {
    if (fields.contains(name)) *into = nb::cast<int>(fields[name]);
  };
  card.has_device = fields.contains("uuid");
  text("uuid", &card.device.uuid);
  text("name", &card.device.name);
  text("bus_id", &card.device.bus_id);
  number("index", &card.device.index);
  number("visible", &card.visible);
  text("wanted", &card.wanted);
  number("group_version", &card.group_version);
  text("why_no_group", &card.why_no_group);
  text("group_id", &card.group_id);
  if (fields.contains("direct")) card.direct = nb::cast<bool>(fields["direct"]);
  if (fields.contains("can_export")) card.device.can_export = nb::cast<bool>(fields["can_export"]);
  return card;
}

nb::dict FieldsOf(const DeviceCard& card) {
  nb::dict fields;
  if (card.has_device) fields["uuid"] = card.device.uuid;
  fields["name"] = card.device.name;
  fields["bus_id"] = card.device.bus_id;
  fields["index"] = card.device.index;
  fields["visible"] = card.visible;
  fields["wanted"] = card.wanted;
  fields["group_version"] = card.group_version;
  fields["why_no_group"] = card.why_no_group;
  fields["group_id"] = card.group_id;
  fields["direct"] = card.direct;
  fields["can_export"] = card.device.can_export;
  return fields;
}

nb::tuple DecideFor(const std::vector<std::string>& hosts, const nb::list& cards) {
  std::vector<DeviceCard> decoded;
  for (const nb::handle card : cards) decoded.push_back(CardOf(nb::cast<nb::dict>(card)));
  const Topology topology = ValueOrThrow(Topology::Build(0, hosts));
  const DeviceDecision decision = ValueOrThrow(Decide(topology, decoded));
  return nb::make_tuple(NameOf(decision.stage), decision.warnings, decision.direct);
}

nb::bytes Encoded(const nb::dict& card) {
  const std::string text = Encode(CardOf(card));
  return nb::bytes(text.data(), text.size());
}

nb::object Decoded(const nb::bytes& text) {
  DeviceCard card;
  if (!Decode(std::string(text.c_str(), text.size()), &card)) return nb::none();
  return FieldsOf(card);
}

}  // namespace

void BindDeviceCards(nb::module_& m) {
  m.def("device_decide", &DecideFor, nb::arg("hosts"), nb::arg("cards"));
  m.def("device_card_encode", &Encoded, nb::arg("card"));
  m.def("device_card_decode", &Decoded, nb::arg("text"));
}

}  // namespace smddp
