#include "runtime/plan_retirement.h"

#include <optional>

#include "core/clock.h"
#include "core/log.h"
#include "core/wire.h"

namespace smddp {
namespace {

// A plan of a training that goes on is used more often.
constexpr int64_t kIdleNs = 30 * 1000000000LL;
// From here on also plans in use go: numbers are about to run out (kMaxPlans).
constexpr size_t kMaxPlansInUse = 768;

enum class Kind : uint8_t { kAsk, kIdle, kBusy, kForget, kKeep };

std::string Encode(Kind kind, int number, int64_t steps = 0) {
  WireWriter writer;
  writer.Put(ControlType::kPlanRetirement);
  writer.Put(kind);
  writer.Put(static_cast<int32_t>(number));
  writer.Put(steps);
  return writer.Take();
}

}  // namespace

void PlanRetirement::PostToOthers(const std::string& message) {
  for (const int rank : topology_.world().world_ranks()) {
    if (rank != topology_.rank()) post_(rank, message);
  }
}

void PlanRetirement::Tick(bool quiet) {
  const size_t numbers = coordinator_.plan_numbers();
  if (numbers <= kMaxIdlePlans || asked_ >= 0 || !quiet) return;
  if (refused_ && numbers == numbers_) return;  // all that could go was asked about
  numbers_ = numbers;
  const int64_t now_ns = NowNs();
  const int number = plans_.LeastRecentlyUsed(numbers > kMaxPlansInUse ? now_ns : now_ns - kIdleNs);
  const std::optional<int64_t> steps = plans_.Keep(number);
  refused_ = !steps;
  if (!steps) return;
  asked_ = kept_ = number;
  steps_ = *steps;
  answers_ = 0;
  alike_ = true;
  PostToOthers(Encode(Kind::kAsk, number));
  if (topology_.size() == 1) Decide(/*forget=*/true);
}

bool PlanRetirement::OnMessage(int from, std::string_view message, bool quiet) {
  WireReader reader(message);
  (void)reader.Get<ControlType>();
  const Kind kind = reader.Get<Kind>();
  const int number = reader.Get<int32_t>();
  const int64_t steps = reader.Get<int64_t>();
  if (!reader.at_end() || kind > Kind::kKeep) return false;
  if (topology_.rank() == 0) {
    if (kind != Kind::kIdle && kind != Kind::kBusy) return false;
    if (number != asked_) return true;  // decided already, when a rank left
    alike_ = alike_ && quiet;
    OnAnswer(kind == Kind::kIdle, steps);
    if (asked_ < 0 && alike_) Tick(quiet);  // there may be more
    return true;
  }
  if (from != 0) return false;
  if (kind == Kind::kAsk && kept_ < 0) {
    const std::optional<int64_t> begun = quiet ? plans_.Keep(number) : std::nullopt;
    if (begun) kept_ = number;
    post_(0, begun ? Encode(Kind::kIdle, number, *begun) : Encode(Kind::kBusy, number));
    return true;
  }
  if (kind != Kind::kForget && kind != Kind::kKeep) return false;
  if (kind == Kind::kForget && number != kept_) return false;
  if (number == kept_) End(number, kind == Kind::kForget);
  return true;
}

void PlanRetirement::OnAnswer(bool idle, int64_t steps) {
  alike_ = alike_ && idle && steps == steps_;
  if (++answers_ == topology_.size() - 1) Decide(alike_);
}

void PlanRetirement::Decide(bool forget) {
  const int number = asked_;
  asked_ = -1;
  PostToOthers(Encode(forget ? Kind::kForget : Kind::kKeep, number));
  if (forget) coordinator_.FreePlanNumber(static_cast<uint32_t>(number));
  End(number, forget);
}

void PlanRetirement::End(int number, bool forget) {
  kept_ = -1;
  if (forget) Log(LogLevel::kDebug, "the plan of number " + std::to_string(number) + " is forgotten");
  for (PlanTable::Kept& kept : plans_.EndKeeping(number, forget)) resume_(std::move(kept));
}

void PlanRetirement::OnDeparture(int rank) {
  if (asked_ >= 0) {
    Decide(/*forget=*/false);
  } else if (rank == 0 && kept_ >= 0) {
    End(kept_, /*forget=*/false);
  }
}

}  // namespace smddp
