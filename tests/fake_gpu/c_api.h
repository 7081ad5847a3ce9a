// What the files of C functions share.
#pragma once

#include <cstring>
#include <string>

#include "device/plugin.h"

#define SMDDP_EXPORT extern "C" __attribute__((visibility("default")))

// The words of this thread's last error.
int Noted(const smddp::Status& status);  // 0, or -1
template <class T>
T Noted(const smddp::Result<T>& result, T otherwise) {
  Noted(result.status());
  return result.ok() ? result.value() : otherwise;
}
// Writes the text, with its end, into `into`; -1: an error, or no room.
int Text(const smddp::Result<std::string>& text, char* into, size_t room);

smddp::Device& At(int index);

namespace smddp::fake {
// The process's: the engine's, if that was first.
DevicePlugin& ThePlugin();
}  // namespace smddp::fake
