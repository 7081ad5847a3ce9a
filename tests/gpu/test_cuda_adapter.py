"""What tf_ops/cuda does with CUDA, on a CUDA whose contexts, errors and kernels are those of tests/fake_cuda.

Run with FAKE_GPU_INTERFACE=cuda only; so are the other tests of this folder, on the same adapter.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tests import fake_gpu, native_module
from tests.fake_gpu.gpu import GpuError, call, count, finish, functions, get, held_up, left_clean, put, stream_of
from tests.support.compute_oracle import as_bytes, core, same

ROOT = Path(__file__).resolve().parents[2]
NUMBERS = np.arange(1000, dtype=np.float32)
# Of the headers that the adapter is compiled with.
CUDA_MAJOR = fake_gpu.build_env.find_cuda(fake_gpu.build_env.find_compiler()).version.split(".")[0]
ALIVE = ("allocations", "pinned", "streams")


@pytest.fixture(autouse=True)
def gpus():
    with left_clean(ALIVE, DEVICES="4", DELAY_US="0"):
        yield
    functions().fake_cuda_set_current(-1)


def every_call(device: int) -> list[str]:
    """Makes each call of Device once, in a way that needs nothing else; where the thread's context was after each."""
    after = []

    def note(name, *arguments):
        result = call(name, *arguments)
        after.append((name, functions().fake_cuda_current()))
        return result

    memory, pinned = note("allocate", device, 64), note("allocate_pinned", device, 64)
    stream, event = note("make_stream", device), note("make_event", device)
    note("copy", device, memory, pinned, 64, stream)
    note("record", device, event, stream)
    note("wait", device, stream, event)
    assert finish(stream, device)
    note("done", device, event)
    note("destroy_event", device, event)
    note("destroy_stream", device, stream)
    note("free_pinned", device, pinned)
    note("free", device, memory)
    return after


@pytest.mark.parametrize("current", [-1, 1, 3])
def test_every_call_works_in_its_own_context_and_leaves_the_threads(current):
    for device in range(2):  # 1: opened with another context than its own, and with its own
        functions().fake_cuda_set_current(current)
        after = every_call(device)
        assert len(after) == 12
        assert after == [(name, current) for name, _ in after]


def test_a_failed_call_leaves_the_threads_context(monkeypatch):
    memory, functions_ = call("allocate", 0, 64), functions()
    for kind, name, arguments in (("copy", "copy", (memory, memory, 64, None)), ("event", "make_event", ())):
        monkeypatch.setenv("FAKE_GPU_FAIL", f"{kind}:1")
        functions_.fake_gpu_reload()
        functions_.fake_cuda_set_current(2)
        with pytest.raises(GpuError, match=f"CUDA failed in cu.*: fake GPU: {kind} fails.* .CUDA_ERROR_UNKNOWN"):
            call(name, 0, *arguments)
        assert functions_.fake_cuda_current() == 2
    call("free", 0, memory)


def test_an_event_that_has_not_come_is_no_error():
    event = call("make_event", 0)
    with stream_of() as stream, held_up(stream):
        call("record", 0, event, stream)
        assert [call("done", 0, event) for _ in range(3)] == [0] * 3
    assert call("done", 0, event) == 1
    call("destroy_event", 0, event)


def test_memory_that_cannot_be_had():
    with (
        left_clean(ALIVE, MEMORY="100"),
        pytest.raises(GpuError, match=r"no_resources: .*cuMemAlloc.*set_memory_growth"),
    ):
        call("allocate", 0, 101)


def test_streams_go_before_those_of_others():
    before = count("urgent_streams")
    with stream_of(), stream_of(1):
        assert count("urgent_streams") - before == 2


def test_devices_are_told_apart():
    facts = [native_module.core().Gpu(index).info() for index in range(3)]
    assert len({each["uuid"] for each in facts}) == 3
    assert [each["bus_id"] for each in facts] == ["0000:3B:00.0", "0000:3C:00.0", "0000:3D:00.0"]
    assert {len(each["uuid"]) for each in facts} == {32}
    assert {(each["name"], each["processors"]) for each in facts} == {("NVIDIA H100 80GB HBM3", 4)}


def test_where_memory_lies():
    memory = [put(NUMBERS, device) for device in range(3)]
    pinned = call("allocate_pinned", 1, 64)
    where = [functions().fake_gpu_device_of(ctypes.c_void_p(each)) for each in (*memory, pinned, NUMBERS.ctypes.data)]
    assert where == [0, 1, 2, -1, -1]
    call("free_pinned", 1, pinned)
    for device, each in enumerate(memory):
        call("free", device, each)


# --- The kernels, with the instructions of the GPU ---


def moved(values: np.ndarray, dtype: str, wire: str, packs: bool) -> np.ndarray:
    """Packed as `wire`, or unpacked to `dtype`."""
    to = np.dtype(getattr(ml_dtypes, wire if packs else dtype, None) or (wire if packs else dtype))
    gpu = native_module.core().Gpu(1)
    with stream_of(1) as stream:
        source, target = put(values, 1), call("allocate", 1, values.size * to.itemsize)
        one = [source if packs else target]
        view = native_module.core().GpuView(one, one, [values.size], dtype, wire)
        gpu.pack(view, target, stream) if packs else gpu.unpack(view, source, stream)
        assert finish(stream, 1)
        result = get(target, values.size, to)
        call("free", 1, source)
        call("free", 1, target)
    return result


def on_cpu(values: np.ndarray, to: str, name: str) -> np.ndarray:
    result = np.empty(values.size, to)
    core.compute_cast("auto", as_bytes(result), to, as_bytes(values), name, values.size, 1.0, 1)
    return result


@pytest.mark.parametrize("packs", [True, False])
def test_every_float16_is_widened_as_on_the_cpu(packs):
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    pair = ("float16", "float32") if packs else ("float32", "float16")
    same(moved(every, *pair, packs), on_cpu(every, "float32", "float16"), nan_bits=True)


def test_float32_of_every_kind_is_narrowed_to_float16_as_on_the_cpu():
    """Each combination of sign, exponent and upper bits of the mantissa, with lower bits that decide the rounding."""
    upper = np.arange(1 << 14, dtype=np.uint32) << 18
    lower = np.array([0, 1, 0xFFF, 0x1000, 0x1001, 0x1FFF, 0x2000, 0x3000, 0x3FFFF], np.uint32)
    every = (upper[:, None] | lower).ravel().view(np.float32)
    same(moved(every, "float32", "float16", True), on_cpu(every, "float16", "float32"), nan_bits=True)


# --- Machines ---


def support(**variables: str) -> dict:
    """What the engine says of the GPUs of a machine with these variables; or the error of the first use."""
    program = (
        "import json\nfrom tests.native_module import core\nfound = dict(core().gpu_support())\n"
        "try:\n    found['first'] = core().Gpu(0).info()['name']\n"
        "except core().EngineError as error:\n    found['first'] = str(error)\n"
        "print(json.dumps(found))"
    )
    environment = {**os.environ, **{f"FAKE_{name}": value for name, value in variables.items()}}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def test_a_machine_without_a_driver():
    found = support(CUDA_DRIVER="0")
    assert found["count"] == 0
    assert found["why_none"].startswith("This machine has no NVIDIA driver: libcuda.so.1 cannot be loaded (")


def test_a_driver_of_the_same_major_version_is_new_enough():
    assert support(CUDA_DRIVER=f"{CUDA_MAJOR}000")["count"] == 4


def test_a_driver_that_is_too_old():
    found = support(CUDA_DRIVER="11080")
    assert found["count"] == 0
    assert re.search(rf"needs driver >= \d+ \(CUDA {CUDA_MAJOR}.0\), found 520 \(CUDA 11.8\)", found["why_none"])


def test_no_visible_gpu():
    found = support(GPU_DEVICES="0")
    assert found["count"] == 0
    assert "CUDA_VISIBLE_DEVICES hides them" in found["why_none"]


def test_a_gpu_without_kernels_is_not_counted():
    found = support(CUDA_GPU="p100")
    assert found["count"] == 0
    assert "(Tesla P100) has compute capability 6.0" in found["why_none"]
    assert "Tesla P100" in found["first"]


def test_a_t4_is_counted_and_opened():
    found = support(CUDA_GPU="t4")
    assert (found["count"], found["first"]) == (4, "Tesla T4")


# --- The fake CUDA itself ---

# What CUDA would answer, or what ends the process. `cuda` is the library, `s` a stream, `e` an event, `m` memory of
# device 0, and the context of device 1 is current.
ANSWERS = {
    "cuda.cuEventQuery(e)": "Done got an event of device 0 at device 1",
    "cuda.cuStreamWaitEvent(s, e, 0)": "got a stream of device 0",
    "cuda.cuMemFree_v2(m)": "Free at device 1 of",
    "cuda.cuMemAlloc_v2(ctypes.byref(p), 0)": "answer 1",  # CUDA_ERROR_INVALID_VALUE
    "functions().fake_cuda_set_current(-1); cuda.cuMemAlloc_v2(ctypes.byref(p), 8)": "answer 201",
    "functions().fake_cuda_set_current(-1); cuda.cuEventRecord(e, s)": "answer 201",  # CUDA_ERROR_INVALID_CONTEXT
    "cuda.cuCtxSetCurrent(m)": "answer 201",
    "cuda.cuStreamCreateWithPriority(ctypes.byref(p), 0, 0)": "A stream that waits for the default stream",
    "cuda.cuEventCreate(ctypes.byref(p), 0)": "An event that takes the time",
    "cuda.cuModuleLoadData(ctypes.byref(p), b'machine code 90')": "answer 0",
    "cuda.cuModuleLoadData(ctypes.byref(p), b'PTX 90')": "answer 0",
    "cuda.cuModuleLoadData(ctypes.byref(p), b'machine code 91')": "answer 209",  # CUDA_ERROR_NO_BINARY_FOR_GPU
}


def test_the_fake_cuda_is_strict():
    program = (
        "import ctypes, json, os, resource, sys\n"
        "from tests.fake_gpu.gpu import *\n"
        "resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); cuda = functions(); said = []\n"
        "for case in json.load(sys.stdin):\n"
        "    read, write = os.pipe(); child = os.fork()\n"
        "    if child == 0:\n"
        "        os.dup2(write, 2); p = ctypes.c_void_p()\n"
        "        made = call('allocate', 0, 100), call('make_stream', 0), call('make_event', 0)\n"
        "        m, s, e = map(ctypes.c_void_p, made)\n"
        "        *before, last = case.split('; '); cuda.fake_cuda_set_current(1); exec('; '.join(before))\n"
        "        os.write(2, f'answer {eval(last)}'.encode()); os._exit(0)\n"
        "    os.close(write); said.append(os.fdopen(read).read()); os.waitpid(child, 0)\n"
        "print(json.dumps(said))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        input=json.dumps(list(ANSWERS)),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    for (case, words), said in zip(ANSWERS.items(), json.loads(done.stdout)):
        assert words in said, case
