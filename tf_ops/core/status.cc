#include "core/status.h"

namespace smddp {
namespace {

constexpr const char* kNames[] = {
    "ok",           "bad_argument", "bad_state",        "disagreement", "tensors_differ", "peer_left",
    "peer_raised",  "peer_lost",    "transport_failed", "timed_out",    "step_given_up",  "shut_down",
    "no_resources", "unsupported",  "data_loss",        "internal"};
static_assert(sizeof(kNames) / sizeof(kNames[0]) == static_cast<size_t>(kLastReason) + 1);

}  // namespace

const char* NameOf(Reason reason) { return kNames[static_cast<int>(reason)]; }

std::string Status::ToString() const { return ok() ? "ok" : std::string(NameOf(reason_)) + ": " + message_; }

}  // namespace smddp
