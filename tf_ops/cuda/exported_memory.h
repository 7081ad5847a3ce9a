// The description of exported GPU memory that another process needs to import it.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "core/status.h"

namespace smddp {

struct ExportedMemory {
  std::string process;  // the process that owns the memory (ThisProcess)
  std::string uuid;     // of the GPU
  cudaIpcMemHandle_t handle;
};
std::string Encode(const ExportedMemory& memory);
// kBadArgument: the text does not describe exported memory.
Status Decode(const std::string& text, ExportedMemory* memory);

// Unique per process, also across containers in which process numbers repeat.
const std::string& ThisProcess();

}  // namespace smddp
