// Writes inputs to begin with, one message of every kind:  seeds CORPUS
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "collectives/device/rank_device_info.h"
#include "core/wire.h"
#include "runtime/control/messages.h"
#include "runtime/health/stall_report.h"
#include "runtime/session/set_proposal.h"
#include "transport/tcp/connection.h"
#include "transport/transport.h"

namespace {

using smddp::DType;
using smddp::RequestKind;

// As in fuzz_engine.cc.
smddp::PlanSpec Plan() {
  smddp::PlanSpec spec;
  spec.key = "p";
  spec.tensors = {{DType::kFloat32, {1000, 3}}, {DType::kFloat32, {4, 2}}};
  spec.op = smddp::ReduceOp::kSum;
  return spec;
}

const std::string kPlan = PlanName(Plan(), 0);

constexpr RequestKind kKinds[] = {RequestKind::kAllreduce, RequestKind::kAllreduce, RequestKind::kBroadcast,
                                  RequestKind::kAllgather, RequestKind::kAlltoall};  // of the names a to e

RequestKind KindOf(const std::string& name) { return name == kPlan ? RequestKind::kPlan : kKinds[name[0] - 'a']; }

std::vector<std::string> Announcements() {
  std::vector<std::string> all;
  const char* names[] = {"a", "b", "c", "d", "e"};
  for (int i = 0; i < 5; ++i) {
    smddp::Announcement one;
    one.kind = kKinds[i];
    one.name = names[i];
    one.tensors = {{DType::kFloat32, i == 0 || i > 2 ? std::vector<int64_t>{4, 2} : std::vector<int64_t>{1000, 3}}};
    one.root = i == 2 ? 1 : 0;
    if (i == 0) one.data = std::string(32, 'x');
    if (i == 4) one.splits = {2, 2};
    all.push_back(Encode(one));
  }
  const smddp::PlanSpec spec = Plan();
  smddp::Announcement plan;
  plan.kind = RequestKind::kPlan;
  plan.name = kPlan;
  plan.tensors = spec.tensors;
  plan.facts = DescribePlan(spec);
  plan.plan_key = "p";
  all.push_back(Encode(plan));
  return all;
}

std::vector<std::string> Answers() {
  std::vector<std::string> all;
  for (const std::string& name : std::vector<std::string>{"a", "b", "c", "d", "e", kPlan}) {
    smddp::Verdict verdict;
    verdict.kind = KindOf(name);
    verdict.name = name;
    verdict.operation = 1;
    if (name[0] == 'a') verdict.data = std::string(32, 'y');
    if (name[0] == 'd') verdict.dim0_of_rank = {4, 4};
    all.push_back(Encode(verdict));
    verdict.joined = {0, 1};
    verdict.kind = verdict.request.kind = name == kPlan ? RequestKind::kPlan : RequestKind::kAllreduce;
    verdict.request.tensors = {{DType::kFloat32, {1000, 3}}};
    all.push_back(Encode(verdict));
  }
  smddp::Verdict fused;
  fused.kind = RequestKind::kAllreduce;
  fused.name = "b";
  fused.operation = 1;
  fused.fused = {{"a"}};
  all.push_back(Encode(fused));
  fused.number = 0;
  fused.fused.front().number = 1;
  all.push_back(Encode(fused));
  fused.told = fused.fused.front().told = true;
  all.push_back(Encode(fused));
  smddp::Announcement numbered;
  numbered.number = 0;
  numbered.data = std::string(32, 'x');
  all.push_back(Encode(smddp::Batch{{Encode(numbered), Encode(smddp::HeartbeatMessage())}}));
  const smddp::Goodbye at_exit = {true, true, {0, 1}};
  all.push_back(Encode(smddp::Departed{{{0, at_exit}, {1, at_exit}}}));
  smddp::PlanOrder order;
  order.plan = 1;
  order.order = {1, 0};
  all.push_back(Encode(order));
  all.push_back(Encode(smddp::JoinNotice{0, true, true, {{kPlan, 3}}}));
  all.push_back(Encode(smddp::JoinOver{1, {{kPlan, 3}}}));
  all.push_back(Encode(smddp::StepGivenUp{kPlan, 1, false}));
  all.push_back(Encode(smddp::StepGivenUp{kPlan, 1, true}));
  all.push_back(Encode(smddp::RequestGivenUp{"a"}));
  for (uint8_t kind = 0; kind <= 4; ++kind) {  // runtime/plans/plan_retirement.cc
    smddp::FieldWriter writer;
    writer(smddp::ControlType::kPlanRetirement, kind, int32_t{1}, int64_t{1});
    all.push_back(writer.Take());
  }
  all.push_back(Encode(smddp::Goodbye{false, true}));
  all.push_back(Encode(smddp::Abort{smddp::Status(smddp::Reason::kInternal, "why")}));
  for (uint8_t kind = 1; kind <= 3; ++kind) {  // runtime/timeline/timeline_group.cc
    smddp::FieldWriter writer;
    writer(smddp::ControlType::kTimeline, kind, int64_t{5}, int64_t{7}, uint8_t{1});
    writer(std::string(kind == 1 ? "/nonexistent/folder/timeline" : ""));
    all.push_back(writer.Take());
  }
  for (uint8_t kind = 0; kind < 3; ++kind) {  // runtime/health/exception_notice.cc
    smddp::FieldWriter writer;
    writer(smddp::ControlType::kExceptionNotice, kind, std::string(kind == 0 ? "nobody caught it" : ""));
    all.push_back(writer.Take());
  }
  smddp::RankStatus where;
  where.asks = true;
  all.push_back(Encode(where));
  where = {false, "Rank 1 is somewhere.", true, smddp::WaitsFor::kCall, 1000, {{kPlan, 3}}};
  all.push_back(Encode(where));
  return all;
}

// One for each check in the engine; without it the engine reads or writes where it must not, stops, or never ends.
std::vector<std::pair<std::string, std::string>> Hostile() {
  std::vector<std::pair<std::string, std::string>> all;
  const auto verdict = [&](const std::string& what, const std::string& name, auto change) {
    smddp::Verdict one;
    one.kind = name == "z" ? RequestKind::kAllreduce : KindOf(name);
    one.name = name;
    one.operation = 1;
    change(&one);
    all.emplace_back(what, Encode(one));
  };
  const auto announcement = [&](const std::string& what, auto change) {
    smddp::Announcement one;
    one.kind = RequestKind::kAllreduce;
    one.name = "b";
    one.tensors = {{DType::kFloat32, {1000, 3}}};
    change(&one);
    all.emplace_back(what, Encode(one));
    // The same as what a rank that has joined is told to take part in.
    verdict(what + "-joined", "z", [&](smddp::Verdict* told) {
      told->joined = {0, 1};
      told->kind = one.kind;
      told->request = one;
    });
  };
  using Verdict = smddp::Verdict;
  using Announcement = smddp::Announcement;
  verdict("rows-missing", "d", [](Verdict*) {});
  verdict("rows-too-many", "d", [](Verdict* one) { one->dim0_of_rank = {int64_t{1} << 62, int64_t{1} << 62}; });
  verdict("rows-not-mine", "d", [](Verdict* one) { one->dim0_of_rank = {40000, 40000}; });
  verdict("rows-negative", "d", [](Verdict* one) { one->dim0_of_rank = {4, -4}; });
  verdict("data-too-short", "a", [](Verdict* one) { one->data = "x"; });
  verdict("control-tag", "b", [](Verdict* one) { one->operation = smddp::kMaxOperation; });
  verdict("fused-unknown", "b", [](Verdict* one) { one->fused = {{"nothing"}}; });
  verdict("fused-with-itself", "b", [](Verdict* one) { one->fused = {{"b"}}; });
  verdict("fused-kinds", "b", [](Verdict* one) { one->fused = {{"c"}, {"d"}, {"e"}}; });
  announcement("shape-negative", [](Announcement* one) { one->tensors[0].shape = {-1000, 3}; });
  announcement("shape-too-large", [](Announcement* one) { one->tensors[0].shape = {int64_t{1} << 62, 1 << 20}; });
  announcement("operator", [](Announcement* one) { one->op = static_cast<smddp::ReduceOp>(77); });
  announcement("dtype", [](Announcement* one) { one->tensors[0].dtype = static_cast<DType>(99); });
  announcement("dtype-without-arithmetic", [](Announcement* one) { one->tensors[0].dtype = DType::kComplex64; });
  announcement("wire-dtype", [](Announcement* one) { one->wire_dtype = DType::kUInt8; });
  announcement("kind", [](Announcement* one) { one->kind = RequestKind::kBroadcast; });
  announcement("adasum-plan", [](Announcement* one) {
    one->kind = RequestKind::kPlan;
    one->op = smddp::ReduceOp::kAdasum;
  });
  announcement("empty-plan", [](Announcement* one) {
    one->kind = RequestKind::kPlan;
    one->tensors = {};
  });
  smddp::PlanOrder order;
  order.plan = -1;
  all.emplace_back("order-of-no-plan", Encode(order));
  order.plan = 1;
  order.order = {0, 0};
  all.emplace_back("order-that-is-none", Encode(order));
  const int64_t ever = INT64_MAX;
  all.emplace_back("steps-without-end", Encode(smddp::JoinNotice{0, true, true, {{kPlan, ever}}}));
  all.emplace_back("last-of-nobody", Encode(smddp::JoinOver{1000000, {}}));
  for (const auto type : {smddp::ControlType::kExceptionNotice, smddp::ControlType::kStall}) {
    for (const uint8_t kind : {0, 1, 2, 3}) {  // runtime/health/exception_notice.cc, stall_report.cc
      smddp::FieldWriter writer;
      writer(type, kind);
      if (kind > 0) writer(std::string("words"));
      all.emplace_back("words-" + std::to_string(static_cast<int>(type)) + "-" + std::to_string(kind), writer.Take());
    }
  }
  for (const uint8_t kind : {1, 2, 3}) {  // runtime/timeline/timeline_group.cc
    smddp::FieldWriter writer;
    writer(smddp::ControlType::kTimeline, kind, int64_t{INT64_MIN}, int64_t{INT64_MAX}, uint8_t{1});
    writer(std::string("/nonexistent/folder/timeline"));
    all.emplace_back("time-" + std::to_string(kind), writer.Take());
  }
  return all;
}

// Four ranks with a GPU, or one that says less.
std::string DeviceInfos(const std::vector<const char*>& uuids, int group_version) {
  std::vector<std::string> texts;
  for (const char* const uuid : uuids) {
    smddp::RankDeviceInfo info;
    info.has_device = *uuid != 0;
    info.device.name = "GPU";
    info.device.uuid = uuid;
    info.group_version = group_version;
    texts.push_back(Encode(info));
  }
  smddp::FieldWriter fields;
  fields(texts);
  return fields.Take();
}

// As input.h takes it.
std::string Text(const std::string& bytes) {
  smddp::FieldWriter writer;
  writer(static_cast<uint16_t>(bytes.size()));
  return writer.Take() + bytes;
}

void Write(const std::string& folder, const std::string& name, const std::string& bytes) {
  std::ofstream(folder + "/" + name, std::ios::binary) << bytes;
}

// As fuzz_tcp.cc takes them: the length of its receives, frames.
void WriteConnections(const std::string& folder) {
  const auto frame = [](uint32_t tag, size_t length, const std::string& body) {
    smddp::FieldWriter writer;
    writer(tag, static_cast<uint32_t>(length));
    return writer.Take() + body;
  };
  constexpr char kLength = 9;  // and by its remainders: after a handshake, to receives of operation 0
  const std::string body(kLength, 'x'), data = frame(smddp::PackTag({0, 0, 0}), body.size(), body);
  const std::string early = frame(smddp::PackTag({7, 0, 0}), body.size(), body);
  const std::string control = frame(smddp::kControlTag, body.size(), body), bye = frame(smddp::kByeTag, 0, "");
  const std::string begin(1, kLength);
  Write(folder, "all", begin + data + control + early + data + bye);
  Write(folder, "after-the-end", begin + bye + data + control);
  Write(folder, "cut", begin + data + data.substr(0, 12));
  Write(folder, "another-length", begin + frame(smddp::PackTag({0, 0, 0}), 1, "x"));
  Write(folder, "too-long", begin + frame(smddp::PackTag({0, 0, 0}), smddp::kMaxDataBytes + 1, body));
  Write(folder, "too-long-control", begin + frame(smddp::kControlTag, smddp::kMaxControlBytes + 1, body));
  Write(folder, "bye-with-a-body", begin + frame(smddp::kByeTag, body.size(), body));
  Write(folder, "without-a-key", std::string(1, '\0') + std::string(64, 'x'));
}

}  // namespace

int main(int, char** arguments) {
  const std::string corpus = arguments[1];
  std::vector<std::string> messages = Announcements();
  std::string together(1, '\1');
  for (const std::string& message : messages) {
    for (const char rank : {'\0', '\1', '\2'}) together += std::string({rank, '\1'}) + Text(message);
  }
  Write(corpus + "/coordinator", "announcements", together);
  Write(corpus + "/device_infos", "nccl", DeviceInfos({"a", "b", "a", "b"}, 22703));
  Write(corpus + "/device_infos", "shared", DeviceInfos({"a", "a", "b", "b"}, 0));
  Write(corpus + "/device_infos", "host", DeviceInfos({"a", "a", "", "b"}, 0));
  smddp::SetProposal proposal;
  proposal.entries = {{{0, 1}, false}, {{1, 2}, true}};
  std::string proposals(1, '\0');
  for (int rank = 0; rank < 3; ++rank) proposals += Text(Encode(proposal));
  Write(corpus + "/coordinator", "proposals", proposals);
  const std::vector<std::string> answers = Answers();
  messages.insert(messages.end(), answers.begin(), answers.end());
  for (int kind = 0; kind < 16; ++kind) {
    std::string all(1, static_cast<char>(kind));
    for (const std::string& message : messages) all += std::string(1, '\0') + Text(message);
    Write(corpus + "/engine", "all-" + std::to_string(kind), all);
  }
  for (size_t i = 0; i < messages.size(); ++i) {
    Write(corpus + "/messages", std::to_string(i), messages[i]);
    Write(corpus + "/engine", "one-" + std::to_string(i),
          std::string(1, static_cast<char>(i % 16)) + '\0' + Text(messages[i]));
  }
  const std::string plan_agreed = answers[10];
  for (const auto& [what, message] : Hostile()) {
    for (int kind = 0; kind < 8; ++kind) {
      const std::string input = std::string(1, static_cast<char>(8 + kind)) + '\0' + Text(messages[5]) + '\0' +
                                Text(plan_agreed) + '\0' + Text(message);
      Write(corpus + "/engine", "hostile-" + what + "-" + std::to_string(kind), input);
    }
    Write(corpus + "/messages", "hostile-" + what, message);
  }
  // An alltoall that is agreed on, then row counts; an allreduce, then pieces that are too short.
  const auto then = [&](const std::string& name, const std::string& data) {
    smddp::Verdict verdict;
    verdict.kind = KindOf(name);
    verdict.name = name;
    verdict.operation = 1;
    for (int kind = 0; kind < 4; ++kind) {
      std::string input = std::string(1, static_cast<char>(8 + kind)) + '\0' + Text(Encode(verdict));
      for (const uint32_t stage : {0u, 1u, 3u}) {
        smddp::FieldWriter tag;
        tag(uint8_t{1}, smddp::PackTag({1, static_cast<uint8_t>(stage), 0}));
        input += tag.Take() + Text(data);
      }
      Write(corpus + "/engine", "hostile-data-" + name + "-" + std::to_string(kind), input);
    }
  };
  then("e", std::string(7, '\xff') + '\xff');
  then("e", std::string(7, '\0') + '\x30');
  then("b", "short");
  then("c", "short");
  WriteConnections(corpus + "/tcp");
  std::string notes;
  for (int i = 0; i < 200; ++i) notes += static_cast<char>(i * 37);
  Write(corpus + "/node", "notes", notes);
}
