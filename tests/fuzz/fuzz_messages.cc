// Every control message's decoder.
#include "core/wire.h"
#include "fuzz/there_and_back.h"
#include "runtime/control/messages.h"
#include "runtime/health/stall_report.h"
#include "runtime/session/set_proposal.h"

namespace {

template <class Message>
void TryAs(std::string_view bytes) {
  Message message;
  (void)fuzz::ThereAndBack(bytes, &message);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  (void)smddp::TypeOf(bytes);
  TryAs<smddp::Announcement>(bytes);
  TryAs<smddp::Verdict>(bytes);
  TryAs<smddp::PlanOrder>(bytes);
  TryAs<smddp::JoinNotice>(bytes);
  TryAs<smddp::JoinOver>(bytes);
  TryAs<smddp::StepGivenUp>(bytes);
  TryAs<smddp::RequestGivenUp>(bytes);
  TryAs<smddp::Goodbye>(bytes);
  TryAs<smddp::Abort>(bytes);
  TryAs<smddp::Batch>(bytes);
  TryAs<smddp::Departed>(bytes);
  TryAs<smddp::RankStatus>(bytes);
  return 0;
}
