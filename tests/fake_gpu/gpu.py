"""The fake GPU's functions (c_api.cc, group_c_api.cc) in Python. The engine in this process has the same GPU."""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from tests import fake_gpu

DTYPES = {"float16": 4, "bfloat16": 5, "float32": 6, "float64": 7}  # core/dtype.h

_WORK = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_P, _I, _Z, _S, _L = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_longlong
_FUNCTIONS = {
    "error": (_S,),
    "reload": (None,),
    "count": (_L, _S),
    "allocate": (_P, _I, _Z),
    "free": (None, _I, _P),
    "allocate_pinned": (_P, _I, _Z),
    "free_pinned": (None, _I, _P),
    "read": (None, _P, _P, _Z),
    "write": (None, _P, _P, _Z),
    "make_stream": (_P, _I),
    "destroy_stream": (None, _I, _P),
    "make_event": (_P, _I),
    "destroy_event": (None, _I, _P),
    "record": (_I, _I, _P, _P),
    "wait": (_I, _I, _P, _P),
    "done": (_I, _I, _P),
    "copy": (_I, _I, _P, _P, _Z, _P),
    "zero": (_I, _I, _P, _Z, _P),
    "synchronize": (_I, _I, _P, ctypes.c_double),
    "enqueue": (None, _I, _P, _WORK, _P),
    "load_groups": (_P, _S),
    "group_version": (_I, _P),
    "group_id": (_I, _P, _S, _Z),
    "join": (_P, _P, _S, _I, _I, _I),
    "group_ready": (_I, _P),
    "group_health": (_I, _P),
    "allreduce": (_I, _P, _P, _P, _L, _I, _P),
    "allreduce_together": (_I, _P, ctypes.POINTER(_P), ctypes.POINTER(_L), _I, _I, _P),
    "reduce_scatter": (_I, _P, _P, _P, _L, _I, _P),
    "allgather": (_I, _P, _P, _P, _L, _I, _P),
    "group_abort": (None, _P),
    "leave": (None, _P),
}


class GpuError(RuntimeError):
    """A call of the fake GPU returned a Status that is not OK; its words."""


@functools.cache
def functions() -> ctypes.CDLL:
    """The library, its functions typed."""
    library = ctypes.CDLL(str(fake_gpu.build()))
    for name, (result, *arguments) in _FUNCTIONS.items():
        function = getattr(library, f"fake_gpu_{name}")
        function.restype, function.argtypes = result, arguments
    return library


def call(name: str, *arguments: Any) -> Any:
    """Calls fake_gpu_NAME.

    Raises:
        GpuError: it returned null, or a number below 0.
    """
    result = getattr(functions(), f"fake_gpu_{name}")(*arguments)
    if (_FUNCTIONS[name][0] is _P and result is None) or (_FUNCTIONS[name][0] is _I and result < 0):
        raise GpuError(functions().fake_gpu_error().decode())
    return result


def text(name: str, *arguments: Any) -> str:
    """Calls fake_gpu_NAME, which writes a text behind its other arguments. Raises as `call`."""
    into = ctypes.create_string_buffer(1024)
    call(name, *arguments, into, len(into))
    return into.value.decode()


def count(what: str) -> int:
    """Calls so far, or what is alive (c_api.cc)."""
    return int(functions().fake_gpu_count(what.encode()))


@contextmanager
def left_clean(alive: Sequence[str], **settings: str) -> Iterator[None]:
    """The fake GPU with these variables for the time of a block, of which nothing in `alive` may be left behind."""
    with pytest.MonkeyPatch.context() as environment:
        for name, value in settings.items():
            environment.setenv(f"FAKE_GPU_{name}", value)
        functions().fake_gpu_reload()
        before = {what: count(what) for what in alive}
        yield
    functions().fake_gpu_reload()
    assert {what: count(what) for what in alive} == before


def put(array: np.ndarray, device: int = 0) -> int:
    """New memory of the GPU that holds the array's bytes."""
    memory = int(call("allocate", device, array.nbytes))
    write(memory, array)
    return memory


def write(memory: int, array: np.ndarray) -> None:
    """Puts the array's bytes there at once."""
    source = np.ascontiguousarray(array)
    call("write", memory, source.ctypes.data, source.nbytes)


def get(memory: int, elements: int, dtype: np.dtype | type | str) -> np.ndarray:
    """What the GPU's memory holds at once, whatever its streams will still do."""
    array = np.empty(elements, dtype)
    call("read", array.ctypes.data, memory, array.nbytes)
    return array


def finish(stream: int | None, device: int = 0, seconds: float = 30) -> bool:
    """Waits until the stream has run all that it holds; False: not within the seconds."""
    return bool(call("synchronize", device, stream, seconds))


@contextmanager
def stream_of(device: int = 0) -> Iterator[int]:
    """A stream for the time of a block."""
    stream = int(call("make_stream", device))
    try:
        yield stream
    finally:
        call("destroy_stream", device, stream)


@contextmanager
def held_up(stream: int, device: int = 0) -> Iterator[threading.Event]:
    """The stream runs nothing that it gets in the block, until the event is set or the block ends."""
    go, stopped = threading.Event(), threading.Event()

    @_WORK
    def work(_: int | None) -> None:
        stopped.set()
        go.wait(30)

    call("enqueue", device, stream, work, None)
    assert stopped.wait(30)
    try:
        yield go
    finally:
        go.set()
        finish(stream, device)  # `work` must live until then
