"""Faults of one line in the GPU path, each of which a test must find."""

from __future__ import annotations

from typing import NamedTuple

ADAPTER, BUCKETS, PROCESSES = "test_cuda_adapter.py", "test_buckets.py", "test_processes.py"


class Mutation(NamedTuple):
    """In `file` the text `old`, which is there once, becomes `new`; `test` is a file of tests/gpu."""

    what: str
    file: str
    old: str
    new: str
    test: str
    builds_engine: bool = False


def _without_context(name: str, call: str, test: str = ADAPTER) -> Mutation:
    where = f"  const Current current(*this);\n{call}"
    return Mutation(f"{name} in whatever context the thread has", _DEVICE, where, call, test)


_CUDA = "tf_ops/cuda"
_DEVICE, _PLUGIN = f"{_CUDA}/cuda_device.cc", f"{_CUDA}/cuda_plugin.cc"
_ELEMENTS, _METHOD = f"{_CUDA}/kernels/elements.h", "tf_ops/collectives/device/methods/device_allreduce.cc"
_LOAD, _STORE = "ld.global.v4.u32 {%0, %1, %2, %3}", "{%1, %2, %3, %4}"
_RESTORE = "CudaDevice::Current::~Current() {\n  if (before_ != context_) driver_.cuCtxSetCurrent(before_);\n}"
_HAND_BACK = "    SMDDP_RETURN_IF_ERROR(tensors_.HandBack());\n"
_WAITS = "    if (!ended) return Progress::kWaiting;\n"

MUTATIONS = (
    # --- The adapter to CUDA ---
    Mutation(
        "an event that has not come counts as done",
        _DEVICE,
        "if (result == CUDA_ERROR_NOT_READY) return false;",
        "if (result == CUDA_ERROR_NOT_READY) return true;",
        ADAPTER,
    ),
    Mutation(
        "Wait with its arguments swapped",
        _DEVICE,
        "Native(stream), NativeEvent(event), 0",
        "Native(event), NativeEvent(stream), 0",
        ADAPTER,
    ),
    _without_context("Allocate", "  CUdeviceptr memory = 0;\n"),
    _without_context("Free", "  driver_.cuMemFree_v2"),
    _without_context("FreePinned", "  driver_.cuMemFreeHost"),
    _without_context("MakeStream", "  CUstream stream = nullptr;\n"),
    _without_context("Record", "  return SMDDP_CUDA_STATUS(driver_, cuEventRecord"),
    _without_context("Wait", "  return SMDDP_CUDA_STATUS(driver_, cuStreamWaitEvent"),
    _without_context("Done", "  const CUresult result = driver_.cuEventQuery"),
    _without_context("Copy", "  return SMDDP_CUDA_STATUS(driver_, cuMemcpyAsync"),
    _without_context("a launch", "  const uint32_t most =", BUCKETS),
    Mutation("the thread's context is not restored", _DEVICE, _RESTORE, "CudaDevice::Current::~Current() {}", ADAPTER),
    Mutation(
        "a copy in the other direction",
        _DEVICE,
        "Address(to), Address(from), bytes",
        "Address(from), Address(to), bytes",
        BUCKETS,
    ),
    Mutation("streams of the lowest priority", _DEVICE, "context, greatest)", "context, least)", ADAPTER),
    Mutation(
        "streams that wait for the default stream", _DEVICE, "CU_STREAM_NON_BLOCKING", "CU_STREAM_DEFAULT", ADAPTER
    ),
    Mutation("events that take the time", _DEVICE, "CU_EVENT_DISABLE_TIMING", "CU_EVENT_DEFAULT", ADAPTER),
    Mutation("memory that is pinned for one device", _DEVICE, "CU_MEMHOSTALLOC_PORTABLE", "0", ADAPTER),
    Mutation("all devices have one uuid", _DEVICE, "info.uuid = HexOf(uuid);", 'info.uuid = "0";', ADAPTER),
    Mutation("all memory is on device 0", _PLUGIN, "  return index;\n", "  return 0;\n", ADAPTER),
    Mutation(
        "pinned memory is a device's", _PLUGIN, " || (said == CUDA_SUCCESS && kind == CU_MEMORYTYPE_HOST)", "", ADAPTER
    ),
    Mutation(
        "NCCL joins in the wrong context",
        _PLUGIN,
        "static_cast<CudaDevice&>(device).RunCurrent(call);",
        "(void)device, call();",
        BUCKETS,
    ),
    Mutation("drivers of every age", f"{_CUDA}/driver.cc", "if (found < needed) {", "if (found < 0) {", ADAPTER),
    Mutation(
        "images for newer GPUs",
        f"{_CUDA}/kernel_images.cc",
        "if (image.capability > capability) continue;",
        "",
        ADAPTER,
    ),
    # --- Launches and kernels ---
    Mutation("a grid without blocks", _DEVICE, "blocks, 1, 1,", "0, 1, 1,", BUCKETS),
    Mutation("another parameter", _DEVICE, "{const_cast<MoveJob*>(&job)}", "{const_cast<void**>(job.pieces)}", BUCKETS),
    Mutation(
        "the kernel of the other direction",
        _DEVICE,
        "kernels_[static_cast<int>(job.to)][static_cast<int>(job.from)]",
        "kernels_[static_cast<int>(job.from)][static_cast<int>(job.to)]",
        BUCKETS,
    ),
    Mutation("16 bytes are loaded in another order", _ELEMENTS, _LOAD, "ld.global.v4.u32 {%1, %0, %2, %3}", BUCKETS),
    Mutation("16 bytes are stored in another order", _ELEMENTS, _STORE, "{%1, %2, %4, %3}", BUCKETS),
    Mutation(
        "a NaN of float32 becomes the GPU's own",
        _ELEMENTS,
        "value != value ? static_cast<uint16_t>(nan) : half",
        "half",
        ADAPTER,
    ),
    Mutation(
        "a NaN of float16 becomes the GPU's own",
        _ELEMENTS,
        "(bits & 0x7fffu) > 0x7c00u ? FloatOf(nan) : wide",
        "wide",
        ADAPTER,
    ),
    # --- The engine ---
    Mutation("gradients are handed back too early", _METHOD, _WAITS + "", _HAND_BACK + _WAITS, PROCESSES, True),
    Mutation("gradients are never handed back", _METHOD, _HAND_BACK, "", BUCKETS, True),
)
