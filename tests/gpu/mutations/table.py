"""Faults of one line in the GPU path and in TensorFlow's ops for it, each of which a test must find."""

from __future__ import annotations

from typing import NamedTuple

ADAPTER, BUCKETS, PROCESSES = "gpu/test_cuda_adapter.py", "gpu/test_buckets.py", "gpu/test_processes.py"
OPS, NATIVE = "gpu_ops/test_gpu_ops.py", "native/test_native_tests.py"


class Mutation(NamedTuple):
    """In `file` the text `old`, which is there once, becomes `new`; `test` is a file below tests.

    `builds`: "engine" or "ops" where that library is built from `file`, not by the tests themselves.
    """

    what: str
    file: str
    old: str
    new: str
    test: str
    builds: str = ""


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

_OPS = "tf_ops/ops"
_TENSORS = f"{_OPS}/tensor_adapter.cc"


def _of_ops(what: str, file: str, old: str, new: str) -> Mutation:
    return Mutation(what, file, old, new, OPS, "ops")


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
        f"{_CUDA}/cuda_device.h",
        "    const Current current(*this);\n    call();",
        "    call();",
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
    Mutation("gradients are handed back too early", _METHOD, _WAITS + "", _HAND_BACK + _WAITS, PROCESSES, "engine"),
    Mutation("gradients are never handed back", _METHOD, _HAND_BACK, "", BUCKETS, "engine"),
    Mutation(
        "memory is allocated while calls of NCCL wait for other ranks",
        "tf_ops/collectives/device/device_context.h",
        "method_ != DeviceMethod::kNode || !calls_ ? true : calls_->Idle()",
        "true",
        NATIVE,  # in a job the deadlock needs two unlucky ranks; the buckets take their memory before their first call
        "engine",
    ),
    # --- TensorFlow's ops, and XLA's call ---
    _of_ops(
        "TensorFlow's work is marked on another stream", _TENSORS, "tensor.input, stream)", "tensor.input, nullptr)"
    ),
    _of_ops(
        "tensors on a GPU are taken for tensors in host memory",
        _TENSORS,
        "if (refs.empty() || !IsOnDevice(context, 0)) return refs;",
        "return refs;",
    ),
    _of_ops(
        "tensors that a kernel asked for in host memory are taken for tensors on the GPU",
        _TENSORS,
        "context->input_memory_type(index) == tensorflow::DEVICE_MEMORY",
        "true",
    ),
    _of_ops("a GPU of another maker is used", _TENSORS, " || device->IsPluggableDevice()", ""),
    _of_ops(
        "XLA's call returns before its stream waits for the results",
        f"{_OPS}/xla/custom_call.cc",
        "  return Wait([&](DoneCallback done) { Start(std::move(call), std::move(done)); });",
        "  Start(std::move(call), [](const Status&) {});\n  return Status::Ok();",
    ),
)
