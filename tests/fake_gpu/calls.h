// What a GPU is asked to do, below the interface through which it is asked: Device (device.cc) or CUDA
// (tests/fake_cuda). Each call is counted, and fails where FAKE_GPU_FAIL says so or where its device is broken.
// Threads: any.
#pragma once

#include <cstddef>

#include "core/status.h"

namespace smddp::fake {

// The error of a call of this kind to the device, if there is one.
Status Begin(int device, const char* kind);

Result<void*> NewMemory(int device, size_t bytes);
void FreeMemory(int device, void* memory);
Result<void*> NewPinned(int device, size_t bytes);
void FreePinned(int device, void* memory);

Result<void*> NewStream(int device);
Result<void*> NewEvent(int device);
// Event and stream must be the device's.
Status Record(int device, void* event, void* stream);
// The stream must be the device's.
Status Wait(int device, void* stream, void* event);
Result<bool> Done(int device, void* event);
Status Copy(int device, void* to, const void* from, size_t bytes, void* stream);

}  // namespace smddp::fake
