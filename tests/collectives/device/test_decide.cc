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
  if (uuid.empty()) return info;
  info.has_device = true;
  info.device.uuid = uuid;
  info.device.name = "Fake";
  info.device.bus_id = "bus of " + uuid;
  info.group_version = kNccl;
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
auto Version(int version) {
  return [version](RankDeviceInfo* info) { info->group_version = version; };
}

Result<DeviceDecision> DecisionOf(const std::vector<int>& ranks, const Infos& infos,
                                  const std::string& wanted = "auto") {
  return Decide(Value(Topology::Build(0, Hosts(ranks))), wanted, infos);
}
// In the order in which they are tried.
std::string MethodsOf(const std::vector<int>& ranks, const Infos& infos, const std::string& wanted = "auto") {
  std::string names;
  for (const DeviceMethod method : Value(DecisionOf(ranks, infos, wanted)).methods) {
    names += (names.empty() ? "" : " ") + std::string(NameOf(method));
  }
  return names;
}
std::string WhyNot(const std::vector<int>& ranks, const Infos& infos) {
  return Value(DecisionOf(ranks, infos)).why_not_nccl;
}

TEST_CASE("decide: auto tries what all can have, the best first") {
  const std::string all = "nccl nccl-node host", in_nodes = "nccl-node host";
  CHECK(MethodsOf({2}, Of({"a", "b"})) == "nccl host");  // on one node both of NCCL's are the same
  CHECK(MethodsOf({2, 2}, Of({"a", "b", "c", "d"})) == all);
  CHECK(MethodsOf({2, 2}, Of({"a", "b", "a", "b"})) == all);  // uuids and bus ids say nothing across nodes
  CHECK(MethodsOf({2, 1}, Of({"a", "b", "c"})) == all);
  CHECK(MethodsOf({1, 1}, Of({"a", "b"})) == all);
  CHECK(MethodsOf({1, 1}, {Info("a"), Info("b", Version(22802))}) == in_nodes);  // no node has several ranks
  CHECK(MethodsOf({1, 1}, Of({"a", "b"}, Version(0))) == in_nodes);
  CHECK(MethodsOf({2, 1}, {Info("a"), Info("b"), Info("c", Version(0))}) == in_nodes);  // the one without needs none
  CHECK(MethodsOf({2, 2}, {Info("a"), Info("b"), Info("c", Version(22802)), Info("d", Version(22802))}) == in_nodes);
  CHECK(MethodsOf({1}, Of({""})) == "host");
  CHECK(MethodsOf({2}, Of({"a", "a"})) == "host");
  CHECK(MethodsOf({2}, Of({"a", "b"}, Version(0))) == "host");
  CHECK(MethodsOf({2, 2}, Of({"a", "b", "c", "c"})) == "host");  // one node could
  CHECK(MethodsOf({2, 1}, Of({"a", "a", ""})) == "host");
  CHECK(MethodsOf({2}, {Info("a"), Info("b", Version(22802))}) == "host");
}

TEST_CASE("decide: slices of one GPU count as one GPU") {
  Infos slices = Of({"a", "b", "c"});
  slices[2].device.bus_id = slices[0].device.bus_id;
  CHECK(MethodsOf({3}, slices) == "host");
  CHECK(Has(WhyNot({3}, slices),
            "rank 0 (host h0) and rank 2 (host h0) use the same GPU, Fake bus of a: NCCL needs one per rank"));
  CHECK(MethodsOf({2, 1}, slices) == "nccl nccl-node host");
  CHECK(Has(WhyNot({3}, slices), "tf.config.set_visible_devices(gpus[hvd.local_rank()]"));
  Infos buses = Of({"a", "a"});
  buses[1].device.bus_id = "another";
  CHECK(MethodsOf({2}, buses) == "host");
}

TEST_CASE("decide: auto says what keeps it from the best") {
  CHECK(WhyNot({2}, Of({"a", "b"})).empty());
  CHECK(WhyNot({2}, Of({"", ""})).empty());
  CHECK(Has(WhyNot({2, 1}, {Info("a"), Info("b"), Info("c", Version(22802))}),
            "rank 0 (host h0) has NCCL 22703 and rank 2 (host h1) has NCCL 22802"));
  CHECK(Has(WhyNot({2}, {Info("a"), Info("")}), "rank 1 (host h0) has no gradients on a GPU"));
}

TEST_CASE("decide: what is wanted is taken alone when it can be") {
  for (const char* wanted : {"nccl", "nccl-node", "host"}) {
    CHECK(MethodsOf({2}, Of({"a", "b"}), wanted) == wanted);
    CHECK(MethodsOf({1, 2}, Of({"a", "b", "c"}), wanted) == wanted);
  }
}

TEST_CASE("decide: what cannot be is refused with the rank and the cause") {
  const auto refused = [](const std::vector<int>& ranks, const Infos& infos, const std::string& wanted = "nccl") {
    return DecisionOf(ranks, infos, wanted).status().message();
  };
  Infos four = Of({"a", "b", "c", "d"});
  four[3].group_version = 0;
  four[3].why_no_group = "no file.";
  for (const std::string wanted : {"nccl", "nccl-node"}) {
    CHECK(Has(refused({2, 2}, four, wanted),
              "SMDDP_GPU_STAGE=" + wanted + ", but rank 3 (host h1) cannot use NCCL: no file."));
    CHECK(
        Has(refused({2}, Of({"a", "a"}), wanted), "rank 0 (host h0) and rank 1 (host h0) use the same GPU, Fake bus"));
    CHECK(Has(refused({2}, {Info("a"), Info("")}, wanted), "rank 1 (host h0) has no gradients on a GPU"));
  }
  Infos other_version = Of({"a", "b"});
  other_version[1].group_version = 22802;
  CHECK(Has(refused({2}, other_version, "nccl-node"), "rank 1 (host h0) has NCCL 22802"));
  CHECK(Has(refused({1, 1}, other_version), "rank 1 (host h1) has NCCL 22802"));
  CHECK(MethodsOf({1, 1}, other_version, "nccl-node") == "nccl-node");  // the nodes' libraries do not meet
}

TEST_CASE("decide: ranks may share a GPU only where NCCL was asked for and told so") {
  const auto shared = [](bool shares) {
    return Of({"a", "a"}, [&](RankDeviceInfo* info) { info->shares_device = shares; });
  };
  for (const char* wanted : {"nccl", "nccl-node"}) CHECK(MethodsOf({2}, shared(true), wanted) == wanted);
  CHECK(MethodsOf({2}, shared(true)) == "host");
  CHECK_FALSE(DecisionOf({2}, shared(false), "nccl").ok());
}

TEST_CASE("decide: gradients on no GPU stay where they are") {
  for (const char* wanted : {"auto", "nccl"}) CHECK(MethodsOf({2}, Of({"", ""}), wanted) == "host");
}

RankDeviceInfo Full() {
  RankDeviceInfo info = Info("GPU-1");
  info.device.index = 3;
  info.device.processors = 132;
  info.why_no_group = std::string("because\0of", 10);
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
  CHECK(got.device.processors == 132);
  CHECK(got.group_version == kNccl);
  CHECK(got.why_no_group == full.why_no_group);
  CHECK(got.shares_device);
  REQUIRE(Decode(Encode(Info()), &got));
  CHECK_FALSE(got.has_device);
}

TEST_CASE("decide: damaged device infos are refused") {
  RankDeviceInfo sent = Info("GPU-1");
  sent.why_no_group = std::string(128, 'x');
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
