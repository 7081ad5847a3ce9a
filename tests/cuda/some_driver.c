// A libcuda.so.1 that names GPUs and does nothing else, for tests of what is said about drivers and GPUs. driver.py
// compiles it with functions that fail for all that is missing here.
//   SOME_DRIVER_CUDA   what it says its CUDA is, such as 12040
//   SOME_DRIVER_GPUS   the compute capability of each GPU, such as 70,90
#include <stdlib.h>
#include <string.h>

enum { kMajor = 75, kMinor = 76, kNoDevice = 100, kInvalidDevice = 101 };

static int Capability(int index) {
  const char* at = getenv("SOME_DRIVER_GPUS");
  for (; at != NULL && *at != '\0'; --index) {
    if (index == 0) return atoi(at);
    at = strchr(at, ',');
    if (at != NULL) ++at;
  }
  return 0;
}

int cuDriverGetVersion(int* version) {
  *version = atoi(getenv("SOME_DRIVER_CUDA"));
  return 0;
}

int cuInit(unsigned flags) {
  (void)flags;
  return Capability(0) == 0 ? kNoDevice : 0;
}

int cuGetErrorName(int code, const char** name) {
  *name = code == kNoDevice ? "CUDA_ERROR_NO_DEVICE" : "CUDA_ERROR_INVALID_DEVICE";
  return 0;
}

int cuGetErrorString(int code, const char** text) {
  *text = code == kNoDevice ? "no CUDA-capable device is detected" : "invalid device ordinal";
  return 0;
}

int cuDeviceGetCount(int* count) {
  for (*count = 0; Capability(*count) != 0;) ++*count;
  return 0;
}

int cuDeviceGet(int* device, int index) {
  *device = index;
  return Capability(index) == 0 ? kInvalidDevice : 0;
}

int cuDeviceGetAttribute(int* value, int attribute, int device) {
  *value = attribute == kMajor ? Capability(device) / 10 : attribute == kMinor ? Capability(device) % 10 : 0;
  return 0;
}

int cuDeviceGetName(char* name, int room, int device) {
  strncpy(name, Capability(device) == 70 ? "Tesla V100" : Capability(device) < 70 ? "Tesla P100" : "Newer", room);
  return 0;
}
