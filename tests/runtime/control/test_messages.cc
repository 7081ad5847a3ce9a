#include "native/testing.h"
#include "runtime/control/messages.h"
#include "transport/transport.h"

namespace smddp {
namespace {

Announcement Allreduce() {
  Announcement request;
  request.kind = RequestKind::kAllreduce;
  request.name = "loss";
  request.tensors = {{DType::kFloat32, {3, 2}}, {DType::kInt32, {}}};
  request.op = ReduceOp::kSum;
  request.prescale = 0.25;
  request.data = "contribution";
  request.round = 3;
  return request;
}

// Is it taken once it was changed so?
template <class M, class Change>
bool IsTaken(M message, Change&& change) {
  change(&message);
  M got;
  return Decode(Encode(message), &got);
}

TEST_CASE("messages: an announcement travels, and with a number nothing that the coordinator knows") {
  const Announcement sent = Allreduce();
  Announcement got;
  REQUIRE(Decode(Encode(sent), &got));
  CHECK(got.name == "loss");
  REQUIRE(got.tensors.size() == 2);
  for (size_t i = 0; i < 2; ++i) {
    CHECK(got.tensors[i].dtype == sent.tensors[i].dtype);
    CHECK(got.tensors[i].shape == sent.tensors[i].shape);
  }
  CHECK(got.op == ReduceOp::kSum);
  CHECK(got.prescale == 0.25);
  CHECK(got.data == "contribution");
  CHECK(got.round == 3);
  Announcement numbered = sent;
  numbered.number = 7;
  REQUIRE(Decode(Encode(numbered), &(got = Announcement())));
  CHECK(got.number == 7);
  CHECK(got.data == "contribution");
  CHECK(got.name.empty());
  CHECK(Encode(numbered).size() < Encode(sent).size() - 40);
}

TEST_CASE("messages: announcements that no rank sends are refused") {
  const auto taken = [](auto change) { return IsTaken(Allreduce(), change); };
  CHECK(taken([](Announcement*) {}));
  CHECK_FALSE(taken([](Announcement* one) { one->kind = static_cast<RequestKind>(kRequestKinds); }));
  CHECK_FALSE(taken([](Announcement* one) { one->op = static_cast<ReduceOp>(6); }));
  CHECK_FALSE(taken([](Announcement* one) { one->tensors[0].dtype = static_cast<DType>(kDTypeCount); }));
  CHECK_FALSE(taken([](Announcement* one) { one->tensors[0].shape = {-1}; }));
  CHECK_FALSE(taken([](Announcement* one) { one->tensors[0].shape = {int64_t{1} << 50}; }));
  CHECK(taken([](Announcement* one) { one->wire_dtype = DType::kInt8; }));
  CHECK_FALSE(taken([](Announcement* one) { one->wire_dtype = DType::kInt32; }));
  CHECK_FALSE(taken([](Announcement* one) { one->data = std::string(kMaxInlineBytes + 1, 'x'); }));
  CHECK_FALSE(taken([](Announcement* one) { one->tensors[0].dtype = DType::kUInt32; }));  // its data cannot be summed
  CHECK_FALSE(taken([](Announcement* one) { one->op = ReduceOp::kAdasum; }));
  CHECK_FALSE(taken([](Announcement* one) { one->kind = RequestKind::kBroadcast; }));
  CHECK(taken([](Announcement* one) {
    one->kind = RequestKind::kPlan;
    one->data = kHasDevices;
  }));
  CHECK_FALSE(taken([](Announcement* one) {
    one->kind = RequestKind::kPlan;
    one->data = "other";
  }));
}

TEST_CASE("messages: verdicts that no coordinator sends are refused") {
  Verdict verdict;
  verdict.kind = RequestKind::kAllreduce;
  verdict.name = "loss";
  const auto taken = [&](auto change) { return IsTaken(verdict, change); };
  CHECK(taken([](Verdict*) {}));
  CHECK_FALSE(taken([](Verdict* one) { one->operation = kMaxOperation; }));
  CHECK_FALSE(taken([](Verdict* one) { one->dim0_of_rank = {3, -1}; }));
  CHECK(taken([](Verdict* one) { one->fused = {{"b"}}; }));
  CHECK_FALSE(taken([](Verdict* one) {
    one->fused = {{"b"}};
    one->status = Status(Reason::kDisagreement, "no");
  }));
  CHECK_FALSE(taken([](Verdict* one) {
    one->fused = {{"b"}};
    one->kind = RequestKind::kBroadcast;
  }));
  CHECK_FALSE(taken([](Verdict* one) { one->joined = {1}; }));  // of another kind than its request
  CHECK(taken([](Verdict* one) {
    one->joined = {1};
    one->request = Allreduce();
  }));
}

TEST_CASE("messages: a told number stands for the name") {
  Verdict sent, got;
  sent.name = "loss";
  sent.number = 4;
  REQUIRE(Decode(Encode(sent), &got));
  CHECK(got.name == "loss");
  sent.told = true;
  REQUIRE(Decode(Encode(sent), &(got = Verdict())));
  CHECK(got.name.empty());
  CHECK(got.number == 4);
}

TEST_CASE("messages: a batch holds others, and no batch") {
  HeartbeatMessage beat;
  JoinNotice notice;
  notice.round = 9;
  notice.steps = {{"plan", 4}};
  Batch batch;
  batch.messages = {Encode(beat), Encode(notice)};
  const std::vector<std::string> unpacked = Unpack(Encode(batch));
  REQUIRE(unpacked.size() == 2);
  JoinNotice got;
  REQUIRE(Decode(unpacked[1], &got));
  CHECK(got.round == 9);
  CHECK(got.steps == notice.steps);
  CHECK(Unpack(Encode(notice)) == std::vector<std::string>{Encode(notice)});
  batch.messages = {Encode(batch)};
  CHECK(Unpack(Encode(batch)) == std::vector<std::string>{Encode(batch)});  // not opened
}

TEST_CASE("messages: types, and which belong to work") {
  CHECK_FALSE(TypeOf(""));
  CHECK_FALSE(TypeOf(std::string(1, '\0')));
  CHECK_FALSE(TypeOf(std::string(1, static_cast<char>(ControlType::kDeparted) + 1)));
  CHECK(TypeOf(Encode(HeartbeatMessage())) == ControlType::kHeartbeat);
  CHECK_FALSE(BelongsToWork(Encode(HeartbeatMessage())));
  CHECK(BelongsToWork(Encode(JoinNotice())));
  CHECK(BelongsToWork(Encode(Allreduce())));
}

TEST_CASE("messages: names of requests") {
  CHECK(std::string(NameOf(RequestKind::kReducescatter)) == "reducescatter");
  CHECK(std::string(CapitalNameOf(RequestKind::kAlltoall)) == "ALLTOALL");
  CHECK(OutlivesRounds(RequestKind::kPlan));
  CHECK_FALSE(OutlivesRounds(RequestKind::kAllreduce));
  CHECK(GivenUpBy(3).reason() == Reason::kStepGivenUp);
  CHECK(Begins(GivenUpBy(3).message(), "Rank 3 gave up a step"));
}

}  // namespace
}  // namespace smddp
