"""Groups over the fake NCCL whose members one thread drives, and what they reduce."""

import ctypes
import time

import ml_dtypes
import numpy as np
import pytest

from tests.fake_gpu.gpu import DTYPES, GpuError, call, finish, text

PATIENCE = 30  # seconds


def numpy_dtype(name):
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def values(member, elements, dtype):
    """Differ by member and position; not all sums are exact in half types."""
    return (np.random.default_rng([member, elements]).standard_normal(elements) * 9).astype(numpy_dtype(dtype))


def sums(arrays):
    """In the order of the members, halves in float32 and rounded once."""
    wide = np.float32 if arrays[0].dtype.itemsize == 2 else arrays[0].dtype
    total = arrays[0].astype(wide)
    for array in arrays[1:]:
        total = total + array.astype(wide)
    return total.astype(arrays[0].dtype)


class Group:
    """All members, driven in turns by this one thread, as NCCL never waits."""

    def __init__(self, nccl, devices):
        identity = text("group_id", nccl).encode()
        self.devices = devices
        self.handles = [
            call("join", nccl, identity, len(devices), member, device) for member, device in enumerate(devices)
        ]
        self.streams = [call("make_stream", device) for device in devices]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for handle in self.handles:
            call("leave", handle)
        for device, stream in zip(self.devices, self.streams):
            call("destroy_stream", device, stream)

    def wait(self, members=None):
        for member in range(len(self.devices)) if members is None else members:
            wait_ready(self.handles[member])

    def finish(self):
        assert all(finish(stream, device) for device, stream in zip(self.devices, self.streams))

    def errors(self, name="group_health"):
        """What each member is told in the end."""
        told = []
        for handle in self.handles:
            with pytest.raises(GpuError) as error:
                wait_for(lambda handle=handle: call(name, handle) and False)
            told.append(str(error.value))
        return told


def allreduce_together(group, member, memory, parts):
    """One launch of an allreduce for each part of float32 memory: so many elements, one after the other."""
    starts = np.cumsum([0, *parts[:-1]])
    buffers = (ctypes.c_void_p * len(parts))(*(memory + 4 * int(start) for start in starts))
    each = (ctypes.c_longlong * len(parts))(*parts)
    call(
        "allreduce_together",
        *(group.handles[member], buffers, each, len(parts), DTYPES["float32"], group.streams[member]),
    )


def wait_for(condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "nothing has happened"
        time.sleep(0.0002)


def wait_ready(handle):
    wait_for(lambda: call("group_ready", handle))
