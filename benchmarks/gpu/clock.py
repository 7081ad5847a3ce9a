"""Times of work on a stream, one piece after the other, without the host in between.

The GPU's own events are used through the driver's library (no package is needed): event, work, event, work, ... behind
work that keeps the stream busy until the host has put all of it there ("the plug"). Where there is no driver, the
host's clock is read around each piece, which counts the launch as well: enough to see that the program runs.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from benchmarks.gpu.memory import Machine

__all__ = ["Clock", "DriverClock", "HostClock", "batches", "choose_clock"]

QUEUE = 500  # launches; a stream that holds about twice as many makes the host wait

Work = Callable[[], None]


class Clock(Protocol):
    """`name` says what was read; `times` runs the pieces in this order and returns the seconds of each."""

    name: str

    def times(self, pieces: Sequence[Work], plug: Work) -> list[float]: ...


class HostClock:
    """Seconds from before a piece is handed over until the stream has done it."""

    name = "host clock"

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def times(self, pieces: Sequence[Work], plug: Work) -> list[float]:
        seconds = []
        for piece in pieces:
            self._machine.wait()
            begin = time.perf_counter()
            piece()
            self._machine.wait()
            seconds.append(time.perf_counter() - begin)
        return seconds


class DriverClock:
    """Events of libcuda on the machine's stream.

    Raises:
        OSError: there is no libcuda.
        RuntimeError: a call fails; the code is cuda.h's CUresult.
    """

    name = "CUDA events"

    def __init__(self, machine: Machine, index: int = 0) -> None:
        self._machine = machine
        self._stream = ctypes.c_void_p(machine.stream)
        self._driver = ctypes.CDLL("libcuda.so.1")
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self._call("cuInit", ctypes.c_uint(0))
        self._call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(index))
        # The context that the runtime uses; it lives as long as the process.
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._call("cuCtxSetCurrent", context)
        self._events: list[ctypes.c_void_p] = []

    def times(self, pieces: Sequence[Work], plug: Work) -> list[float]:
        while len(self._events) <= len(pieces):
            event = ctypes.c_void_p()
            self._call("cuEventCreate", ctypes.byref(event), ctypes.c_uint(0))
            self._events.append(event)
        plug()
        self._record(0)
        for i, piece in enumerate(pieces):
            piece()
            self._record(i + 1)
        self._machine.wait()
        return [self._between(i) for i in range(len(pieces))]

    def _record(self, i: int) -> None:
        self._call("cuEventRecord", self._events[i], self._stream)

    def _between(self, i: int) -> float:
        milliseconds = ctypes.c_float()
        self._call("cuEventElapsedTime", ctypes.byref(milliseconds), self._events[i], self._events[i + 1])
        return milliseconds.value / 1e3

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._driver, name)(*arguments)
        if code != 0:
            raise RuntimeError(f"{name} gave {code}.")


def batches(pieces: Sequence[Work], launches: int) -> list[Sequence[Work]]:
    """The pieces in parts that a stream can hold at once; `launches` of each."""
    together = max(1, QUEUE // (launches + 1))
    return [pieces[i : i + together] for i in range(0, len(pieces), together)]


def choose_clock(machine: Machine, work: Work) -> tuple[Clock, str]:
    """Events where they work: when they say about what the host sees of `work`, which should take some milliseconds.

    Returns:
        The clock, and why it is not the better one ("" if it is).
    """
    host = HostClock(machine)
    if machine.fake:
        return host, "a fake GPU has no events"
    host.times([work], work)
    seen = min(host.times([work] * 3, work))
    try:
        events = DriverClock(machine)
        found = min(events.times([work] * 3, work))
    except (OSError, RuntimeError) as error:
        return host, str(error)
    if 0.3 * seen < found < 1.5 * seen:
        return events, ""
    return host, f"events said {found:.6f} s of what took {seen:.6f} s on the host's clock"
