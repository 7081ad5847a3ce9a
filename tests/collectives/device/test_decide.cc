// Which way gradients on GPUs take, decided from what every rank says of its GPU.
#include "collectives/device/rank_device_info.h"
#include "native/testing.h"

namespace smddp {
namespace {

constexpr int kNccl = 22703;
using Infos = std::vector<RankDeviceInfo>;

// So many ranks on each host.
std::vector<std::string> Hosts(const std::vector<int>& ranks) {
  std::vector<std::string> hosts;
  for (size_t host = 0; host < ranks.size(); ++host) hosts.insert(hosts.end(), ranks[host], "h" + std::to_string(host));
  return hosts;
}

// A rank with a GPU that can do everything; without a uuid one that has none.
RankDeviceInfo Info(const std::string& uuid = "") {
  RankDeviceInfo info;
  info.wanted = "auto";
  if (uuid.empty()) return info;
  info.has_device = true;
  info.device.uuid = uuid;
  info.device.name = "Fake";
  info.device.bus_id = "bus of " + uuid;
  info.group_version = kNccl;
  info.visible = 1;
  return info;
}
template <class Change>
RankDeviceInfo Info(const std::string& uuid, Change&& change) {
  RankDeviceInfo info = Info(uuid);
  change(&info);
  return info;
}
Infos Of(const std::vector<std::string>& uuids) {
  Infos infos;
  for (const std::string& uuid : uuids) infos.push_back(Info(uuid));
  return infos;
}
template <class Change>
Infos Of(const std::vector<std::string>& uuids, Change&& change) {
  Infos infos = Of(uuids);
  for (RankDeviceInfo& info : infos) change(&info);
  return infos;
}
auto Wants(const std::string& wanted) {
  return [wanted](RankDeviceInfo* info) { info->wanted = wanted; };
}
auto Version(int version) {
  return [version](RankDeviceInfo* info) { info->group_version = version; };
}
auto Sees(int visible) {
  return [visible](RankDeviceInfo* info) { info->visible = visible; };
}

Result<DeviceDecision> DecisionOf(const std::vector<int>& ranks, const Infos& infos) {
  return Decide(Value(Topology::Build(0, Hosts(ranks))), infos);
}
std::string MethodOf(const std::vector<int>& ranks, const Infos& infos) {
  return NameOf(Value(DecisionOf(ranks, infos)).method);
}

TEST_CASE("decide: auto takes the best way that all have") {
  CHECK(MethodOf({1}, Of({"a"})) == "nccl");
  CHECK(MethodOf({1}, Of({"a"}, Version(0))) == "nccl");  // with nobody to talk to
  CHECK(MethodOf({1}, Of({""})) == "host");
  CHECK(MethodOf({2}, Of({"a", "b"})) == "nccl");
  CHECK(MethodOf({2, 2}, Of({"a", "b", "c", "d"})) == "nccl");
  CHECK(MethodOf({2, 2}, Of({"a", "b", "a", "b"})) == "nccl");  // a uuid says nothing across nodes
  CHECK(MethodOf({2, 1}, Of({"a", "b", "c"})) == "nccl");
  CHECK(MethodOf({2}, Of({"a", "a"})) == "host");
  CHECK(MethodOf({2}, Of({"a", "b"}, Version(0))) == "host");
  CHECK(MethodOf({2, 2}, Of({"a", "b", "c", "c"})) == "host");                       // one node could
  CHECK(MethodOf({1, 1}, Of({"a", "b"}, Version(0))) == "nccl");                     // no node has several ranks
  CHECK(MethodOf({2, 1}, {Info("a"), Info("b"), Info("c", Version(0))}) == "nccl");  // the one without needs none
  CHECK(MethodOf({2, 1}, Of({"a", "a", ""})) == "host");
  CHECK(MethodOf({2}, {Info("a"), Info("b", Version(22802))}) == "host");
  CHECK(MethodOf({1, 1}, {Info("a"), Info("b", Version(22802))}) == "nccl");  // they do not meet
}

TEST_CASE("decide: what is wanted is taken when it can be") {
  for (const char* wanted : {"nccl", "host"}) CHECK(MethodOf({2}, Of({"a", "b"}, Wants(wanted))) == wanted);
}

TEST_CASE("decide: what cannot be is refused with the rank and the cause") {
  const auto refused = [](const std::vector<int>& ranks, const Infos& infos) {
    return DecisionOf(ranks, infos).status().message();
  };
  const RankDeviceInfo without = Info("d", [](RankDeviceInfo* info) {
    info->wanted = "nccl";
    info->group_version = 0;
    info->why_no_group = "no file.";
  });
  Infos three = Of({"a", "b", "c"}, Wants("nccl"));
  three.push_back(without);
  CHECK(Has(refused({2, 2}, three), "SMDDP_GPU_STAGE=nccl, but rank 3 cannot use NCCL: no file."));
  CHECK(Has(refused({2}, Of({"a", "a"}, Wants("nccl"))), "rank 0 and rank 1 (host h0) use the same GPU, Fake a"));
  Infos other_version = Of({"a", "b"}, Wants("nccl"));
  other_version[1].group_version = 22802;
  CHECK(Has(refused({2}, other_version), "rank 1 (the same host"));
  CHECK(Has(refused({2}, {Info("a", Wants("nccl")), Info("", Wants("nccl"))}),
            "rank 1 (host h0) has no gradients on a GPU"));
  CHECK(
      Has(refused({2}, {Info("a", Wants("nccl")), Info("", Wants(""))}), "rank 1 (host h0) has no gradients on a GPU"));
  CHECK(
      Has(refused({2}, {Info("a", Wants("host")), Info("a", Wants("nccl"))}), "is host on rank 0 and nccl on rank 1"));
  CHECK(Has(refused({1}, Of({"a"}, Wants("ipc"))), "auto, nccl or host. Received: ipc"));
  CHECK(DecisionOf({1}, Of({"a"}, Wants("ipc"))).status().reason() == Reason::kBadArgument);
}

TEST_CASE("decide: ranks may share a GPU only where NCCL was asked for and told so") {
  const auto shared = [](const std::string& wanted, bool shares) {
    return Of({"a", "a"}, [&](RankDeviceInfo* info) {
      info->wanted = wanted;
      info->shares_device = shares;
    });
  };
  CHECK(MethodOf({2}, shared("nccl", true)) == "nccl");
  CHECK(MethodOf({2}, shared("auto", true)) == "host");
  CHECK_FALSE(DecisionOf({2}, shared("nccl", false)).ok());
}

TEST_CASE("decide: ranks on one GPU of several are warned of") {
  const auto check = [](const std::vector<int>& ranks, const Infos& infos, const std::vector<std::string>& warned) {
    const std::vector<std::string> warnings = Value(DecisionOf(ranks, infos)).warnings;
    REQUIRE(warnings.size() == warned.size());
    for (size_t i = 0; i < warned.size(); ++i) {
      CHECK(Begins(warnings[i], warned[i]));
      CHECK(Has(warnings[i], "tf.config.set_visible_devices(gpus[hvd.local_rank()]"));
    }
  };
  check({2}, Of({"a", "a"}, Sees(2)), {"Ranks 0 and 1 (host h0)"});
  check({2}, Of({"a", "a"}, Sees(1)), {});  // there is no other
  check({2}, Of({"a", "b"}, Sees(2)), {});
  check({3}, Of({"a", "a", "b"}), {"Ranks 0 and 1 (host h0)"});
  check({4}, Of({"a", "b", "b", "b"}, Sees(1)), {"Ranks 1, 2 and 3 (host h0)"});
  check({1, 2, 2}, Of({"a", "b", "b", "c", "c"}, Sees(8)), {"Ranks 1 and 2 (host h1)", "Ranks 3 and 4 (host h2)"});
  check({2}, {Info("a", [](RankDeviceInfo* info) { info->device.index = 1; }), Info("a")}, {"Ranks 0 and 1 (host h0)"});
}

TEST_CASE("decide: gradients on no GPU stay where they are") {
  for (const char* wanted : {"auto", "nccl"}) CHECK(MethodOf({2}, Of({"", ""}, Wants(wanted))) == "host");
}

TEST_CASE("decide: every rank needs a card") { CHECK(Has(DecisionOf({2}, Of({"a"})).status().message(), "2 ranks")); }

RankDeviceInfo Full() {
  RankDeviceInfo info = Info("GPU-1");
  info.device.index = 3;
  info.device.bytes = int64_t{80} << 30;
  info.device.processors = 132;
  info.visible = 8;
  info.wanted = "host";
  info.group_id = std::string("id\0with anything", 16);
  info.why_no_group = "because";
  info.shares_device = true;
  return info;
}

TEST_CASE("decide: device infos travel") {
  const RankDeviceInfo full = Full();
  RankDeviceInfo got;
  REQUIRE(Decode(Encode(full), &got));
  CHECK(got.has_device);
  CHECK(got.device.uuid == "GPU-1");
  CHECK(got.device.name == "Fake");
  CHECK(got.device.bus_id == "bus of GPU-1");
  CHECK(got.device.index == 3);
  CHECK(got.device.bytes == full.device.bytes);
  CHECK(got.device.processors == 132);
  CHECK(got.visible == 8);
  CHECK(got.wanted == "host");
  CHECK(got.group_version == kNccl);
  CHECK(got.why_no_group == "because");
  CHECK(got.shares_device);
  CHECK(got.group_id == full.group_id);
  REQUIRE(Decode(Encode(Info()), &got));
  CHECK_FALSE(got.has_device);
}

TEST_CASE("decide: damaged device infos are refused") {
  RankDeviceInfo sent = Info("GPU-1");
  sent.group_id = std::string(128, 'x');
  const std::string text = Encode(sent);
  RankDeviceInfo got;
  for (size_t length = 0; length < text.size(); ++length) CHECK_FALSE(Decode(text.substr(0, length), &got));
  CHECK_FALSE(Decode(text + '\0', &got));
  ForSeeds(300, [&](Chance& chance) {  // none may bring the process down
    std::string damaged = text;
    for (int i = 0; i < 3; ++i) damaged[chance.Below(damaged.size())] = static_cast<char>(chance.Below(256));
    RankDeviceInfo read;
    if (Decode(damaged, &read)) CHECK(Encode(read).size() == damaged.size());
  });
}

}  // namespace
}  // namespace smddp
