// What can be read must be the same when it is written and read again.
#pragma once

#include <string>
#include <string_view>

#include "core/check.h"

namespace fuzz {

// Could it be read?
template <class Message>
bool ThereAndBack(std::string_view bytes, Message* message) {
  if (!Decode(bytes, message)) return false;
  Message again;
  const std::string written = Encode(*message);
  SMDDP_CHECK(Decode(written, &again));
  SMDDP_CHECK(Encode(again) == written);
  return true;
}

}  // namespace fuzz
