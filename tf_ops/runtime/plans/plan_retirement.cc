#include "runtime/plans/plan_retirement.h"

#include <utility>

#include "core/clock.h"
#include "core/process/log.h"

namespace smddp {
namespace {

// A plan of a running training is used more often than this.
constexpr int64_t kIdleNs = 30 * 1000000000LL;
// From this number on plans that are in use are considered too: numbers are about to run out (kMaxPlans).
constexpr size_t kMaxPlansInUse = 768;

}  // namespace

struct PlanRetirement::Message {
  static constexpr ControlType kType = ControlType::kPlanRetirement;
  enum class Kind : uint8_t { kAsk, kIdle, kBusy, kForget, kKeep };
  Kind kind = Kind::kAsk;
  int32_t number = 0;
  int64_t steps = 0;

  SMDDP_FIELDS(kind, number, steps);
  bool IsWellFormed() const { return kind <= Kind::kKeep; }
};

// --- Rank 0 ---

void PlanRetirement::Step() {
  const size_t numbers = coordinator_.plan_numbers();
  if (numbers <= kMaxIdlePlans || asked_.number >= 0 || !bus_.failure().ok() || rounds_.anyone()) return;
  if (refused_ && numbers == numbers_) return;  // all candidates have been asked about
  numbers_ = numbers;
  const int64_t now_ns = NowNs();
  Plan* const plan = LeastRecentlyUsed(numbers > kMaxPlansInUse ? now_ns : now_ns - kIdleNs);
  const std::optional<int64_t> steps = plan != nullptr ? Keep(plan) : std::nullopt;
  refused_ = !steps;
  if (!steps) return;
  kept_ = plan->agreed().number();
  asked_ = {kept_, /*answers=*/0, /*alike=*/true, *steps};
  bus_.PostToOthers(Encode(Message{Message::Kind::kAsk, kept_, 0}));
  if (bus_.topology().size() == 1) Decide(/*forget=*/true);
}

bool PlanRetirement::OnAnswer(const Message& message) {
  if (message.kind != Message::Kind::kIdle && message.kind != Message::Kind::kBusy) return false;
  if (message.number != asked_.number) return true;  // decided already, when a rank left
  asked_.alike &= message.kind == Message::Kind::kIdle && message.steps == asked_.steps && !rounds_.anyone();
  if (++asked_.answers == bus_.topology().size() - 1) Decide(asked_.alike);
  return true;
}

void PlanRetirement::Decide(bool forget) {
  const int number = std::exchange(asked_.number, -1);
  bus_.PostToOthers(Encode(Message{forget ? Message::Kind::kForget : Message::Kind::kKeep, number, 0}));
  if (forget) coordinator_.FreePlanNumber(static_cast<uint32_t>(number));
  End(number, forget);
}

// --- All ranks ---

Status PlanRetirement::OnMessage(int from, std::string_view bytes) {
  Message message;
  const bool read = Decode(bytes, &message);
  const bool mine = bus_.topology().rank() == 0;
  if (read && (mine ? OnAnswer(message) : from == 0 && OnRequest(message))) return Status::Ok();
  return Refused(bus_.topology(), from);
}

bool PlanRetirement::OnRequest(const Message& message) {
  if (message.kind == Message::Kind::kAsk && kept_ < 0) {
    Plan* const plan = planned_.plans().Numbered(message.number);
    const bool may_keep = plan != nullptr && !rounds_.anyone();
    const std::optional<int64_t> begun = may_keep ? Keep(plan) : std::nullopt;
    if (begun) kept_ = message.number;
    const Message::Kind kind = begun ? Message::Kind::kIdle : Message::Kind::kBusy;
    bus_.Post(0, Encode(Message{kind, message.number, begun.value_or(0)}));
    return true;
  }
  const bool forget = message.kind == Message::Kind::kForget;
  if (!forget && message.kind != Message::Kind::kKeep) return false;
  if (forget && message.number != kept_) return false;
  if (message.number == kept_) End(message.number, forget);
  return true;
}

bool PlanRetirement::IsIdle(const Plan& plan) const {
  return plan.IsIdle() && (!plan.agreed().devices_possible() || device_paths_.IsSettled(plan.name()));
}

Plan* PlanRetirement::LeastRecentlyUsed(int64_t before_ns) const {
  Plan* least = nullptr;
  for (auto& [name, plan] : planned_.plans().all()) {
    if (plan.agreed().number() < 0 || plan.last_use_ns() > before_ns || !IsIdle(plan)) continue;
    if (least == nullptr || plan.last_use_ns() < least->last_use_ns()) least = &plan;
  }
  return least;
}

std::optional<int64_t> PlanRetirement::Keep(Plan* plan) const {
  if (!IsIdle(*plan)) return std::nullopt;
  planned_.Keep(plan);
  plan->Touch(NowNs());  // a plan that could not be retired is not the next candidate
  return plan->steps().begun();
}

void PlanRetirement::End(int number, bool forget) {
  kept_ = -1;
  Plan* const plan = planned_.plans().Numbered(number);
  if (plan == nullptr) return;
  if (forget) Log(LogLevel::kDebug, "the plan of number ", number, " is forgotten");
  for (KeptArrival& each : planned_.EndKeeping(plan, forget)) resume_(std::move(each));
}

void PlanRetirement::OnDeparture(int rank) {
  if (!bus_.failure().ok()) return;
  if (asked_.number >= 0) {
    Decide(/*forget=*/false);
  } else if (rank == 0 && kept_ >= 0) {
    End(kept_, /*forget=*/false);
  }
}

}  // namespace smddp
