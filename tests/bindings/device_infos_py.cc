// Test access to what the ranks' device infos lead to (collectives/device/rank_device_info.h).
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "bindings/bind.h"
#include "collectives/device/rank_device_info.h"
#include "python/errors.h"

namespace nb = nanobind;

namespace smddp {
namespace {

RankDeviceInfo InfoOf(const nb::dict& fields) {
  RankDeviceInfo info;
  const auto text = [&](const char* name, std::string* into) {
    if (fields.contains(name)) *into = nb::cast<std::string>(fields[name]);
  };
  const auto number = [&](const char* name, int* into) {
    if (fields.contains(name)) *into = nb::cast<int>(fields[name]);
  };
  info.has_device = fields.contains("uuid");
  text("uuid", &info.device.uuid);
  text("name", &info.device.name);
  text("bus_id", &info.device.bus_id);
  number("index", &info.device.index);
  number("visible", &info.visible);
  text("wanted", &info.wanted);
  number("group_version", &info.group_version);
  text("why_no_group", &info.why_no_group);
  text("group_id", &info.group_id);
  return info;
}

nb::dict FieldsOf(const RankDeviceInfo& info) {
  nb::dict fields;
  if (info.has_device) fields["uuid"] = info.device.uuid;
  fields["name"] = info.device.name;
  fields["bus_id"] = info.device.bus_id;
  fields["index"] = info.device.index;
  fields["visible"] = info.visible;
  fields["wanted"] = info.wanted;
  fields["group_version"] = info.group_version;
  fields["why_no_group"] = info.why_no_group;
  fields["group_id"] = info.group_id;
  return fields;
}

nb::tuple DecideFor(const std::vector<std::string>& hosts, const nb::list& infos) {
  std::vector<RankDeviceInfo> decoded;
  for (const nb::handle info : infos) decoded.push_back(InfoOf(nb::cast<nb::dict>(info)));
  const Topology topology = ValueOrThrow(Topology::Build(0, hosts));
  const DeviceDecision decision = ValueOrThrow(Decide(topology, decoded));
  return nb::make_tuple(NameOf(decision.method), decision.warnings);
}

nb::bytes Encoded(const nb::dict& info) {
  const std::string text = Encode(InfoOf(info));
  return nb::bytes(text.data(), text.size());
}

nb::object Decoded(const nb::bytes& text) {
  RankDeviceInfo info;
  if (!Decode(std::string(text.c_str(), text.size()), &info)) return nb::none();
  return FieldsOf(info);
}

}  // namespace

void BindDeviceInfos(nb::module_& m) {
  m.def("device_decide", &DecideFor, nb::arg("hosts"), nb::arg("infos"));
  m.def("device_info_encode", &Encoded, nb::arg("info"));
  m.def("device_info_decode", &Decoded, nb::arg("text"));
}

}  // namespace smddp
