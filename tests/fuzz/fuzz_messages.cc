// Every control message's decoder. What can be read must be the same when it is written and read again.
#include "core/check.h"
#include "core/wire.h"
#include "fuzz/input.h"
#include "runtime/announcement.h"
#include "runtime/set_proposal.h"

namespace {

template <class Message>
void ThereAndBack(std::string_view bytes) {
  Message message, again;
  if (!smddp::Decode(bytes, &message)) return;
  const std::string written = Encode(message);
  SMDDP_CHECK(smddp::Decode(written, &again));
  SMDDP_CHECK(Encode(again) == written);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  smddp::ControlType type;
  (void)smddp::TypeOf(bytes, &type);
  ThereAndBack<smddp::Announcement>(bytes);
  ThereAndBack<smddp::Verdict>(bytes);
  ThereAndBack<smddp::PlanOrder>(bytes);
  ThereAndBack<smddp::JoinNotice>(bytes);
  ThereAndBack<smddp::JoinOver>(bytes);
  ThereAndBack<smddp::Goodbye>(bytes);
  smddp::Status why;
  (void)smddp::DecodeAbort(bytes, &why);
  return 0;
}
