// What travels to another process that is to reach GPU memory of this one.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "core/status.h"

namespace smddp {

struct ExportedMemory {
  std::string process;  // whose memory it is (ThisProcess)
  std::string uuid;     // of the GPU
  cudaIpcMemHandle_t handle;
};
std::string Encode(const ExportedMemory& memory);
// kInvalidArgument: that text is no exported memory.
Status Decode(const std::string& text, ExportedMemory* memory);

// Differs between processes, also of containers in which the numbers of processes repeat.
const std::string& ThisProcess();

}  // namespace smddp
