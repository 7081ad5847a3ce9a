// What the fake NCCL needs of the fake GPU; the fake GPU hands it over when it has loaded a library with this function:
//   extern "C" void fake_nccl_use_gpu(const GpuTable*)
#pragma once

#include <cstddef>
#include <cstdint>

struct GpuTable {
  int (*current)();  // the calling thread's device (cudaGetDevice)
  const char* (*uuid)(int device);
  void (*enqueue)(int device, void* stream, void (*work)(void*), void* argument);
  // Keeps memory of the device from being freed until `release`; `data` is where the bytes are.
  void* (*hold)(int device, const void* memory, size_t bytes, const char* call);
  char* (*data)(void* held);
  void (*release)(void* held);
  // In this order, half types in float32; `dtype` as in core/dtype.h.
  void (*sum)(void* into, const void* const* sources, int count, int64_t elements, int dtype);
  void (*count)(const char* what, int64_t amount);
};
