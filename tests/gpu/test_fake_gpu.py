"""The GPU in host memory that other tests run on: order, memory, and what a real one would not forgive."""

import ctypes
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from tests.fake_gpu.gpu import GpuError, call, count, finish, functions, get, held_up, put, stream_of

ROOT = Path(__file__).resolve().parents[2]
VALUES = np.arange(1000, dtype=np.float32)


@pytest.fixture
def settings(monkeypatch):
    """Sets variables of the fake GPU for a test."""

    def change(**variables):
        for name, value in variables.items():
            monkeypatch.setenv(f"FAKE_GPU_{name}", value)
        functions().fake_gpu_reload()

    yield change
    monkeypatch.undo()
    functions().fake_gpu_reload()


@pytest.fixture(autouse=True)
def nothing_is_left():
    names = ("allocations", "pinned", "streams", "events", "allocated_bytes")
    before = [count(name) for name in names]
    yield
    assert [count(name) for name in names] == before


@pytest.fixture
def memory():
    address = call("allocate", 0, VALUES.nbytes)
    yield address
    call("free", 0, address)


@pytest.fixture
def pinned():
    address = call("allocate_pinned", 0, VALUES.nbytes)
    yield np.frombuffer((ctypes.c_char * VALUES.nbytes).from_address(address), np.float32)
    call("free_pinned", 0, address)


@pytest.fixture
def events():
    made = [call("make_event", 0) for _ in range(3)]
    yield made
    for event in made:
        call("destroy_event", 0, event)


def test_new_memory_is_poisoned_and_aligned():
    for size in (1, 255, 256, 4096, 5000):
        memory = call("allocate", 0, size)
        assert memory % 256 == 0
        assert (get(memory, size, np.uint8) == 0xCB).all()
        call("free", 0, memory)


def test_copies_run_late_and_in_order(memory, pinned, settings):
    settings(DELAY_US="2000")
    with stream_of() as stream:
        pinned[:] = VALUES
        with held_up(stream):
            call("zero", 0, memory, VALUES.nbytes, stream)
            call("copy", 0, memory, pinned.ctypes.data, VALUES.nbytes, stream)
            assert (get(memory, VALUES.nbytes, np.uint8) == 0xCB).all()
            pinned[:] = VALUES + 1  # too early: the copy has not run
        np.testing.assert_array_equal(get(memory, VALUES.size, np.float32), VALUES + 1)


def test_copies_of_pageable_memory_wait_unless_told_otherwise(memory, settings):
    source, result = VALUES.copy(), np.zeros_like(VALUES)
    with stream_of() as stream:
        waits = count("waits_of_host")
        call("copy", 0, memory, source.ctypes.data, VALUES.nbytes, stream)
        call("copy", 0, result.ctypes.data, memory, VALUES.nbytes, stream)
        np.testing.assert_array_equal(result, VALUES)
        assert count("waits_of_host") == waits + 2
        settings(PAGEABLE="later")
        with held_up(stream):
            call("copy", 0, memory, source.ctypes.data, VALUES.nbytes, stream)
            source += 5
        np.testing.assert_array_equal(get(memory, VALUES.size, np.float32), VALUES + 5)


def test_an_event_never_recorded_is_done_and_holds_nobody_up(events):
    assert call("done", 0, events[0]) == 1
    with stream_of() as stream:
        call("wait", 0, stream, events[0])
        assert finish(stream)


def test_a_wait_means_the_last_record_before_it(events):
    early, late, seen = events
    with stream_of() as slow, stream_of() as quick, stream_of() as waiting:
        call("record", 0, early, quick)
        finish(quick)
        call("wait", 0, waiting, early)  # of `quick`
        with held_up(slow) as go:
            call("record", 0, early, slow)
            assert call("done", 0, early) == 0
            assert finish(waiting)  # not held up by the later record
            call("wait", 0, waiting, early)  # of `slow`
            call("record", 0, early, quick)
            finish(quick)
            assert call("done", 0, early) == 1  # as last recorded
            call("record", 0, seen, waiting)
            call("record", 0, late, quick)
            assert not finish(waiting, seconds=0.02)  # still of `slow`
            assert call("done", 0, seen) == 0
            go.set()
            assert finish(waiting)
            assert call("done", 0, seen) == 1


def test_free_waits_for_work(memory):
    other = put(VALUES)
    with stream_of() as stream:
        with held_up(stream):
            call("copy", 0, memory, other, VALUES.nbytes, stream)
            freeing = threading.Thread(target=call, args=("free", 0, other))
            freeing.start()
            freeing.join(0.05)
            assert freeing.is_alive()
        freeing.join(30)
        assert not freeing.is_alive()
    np.testing.assert_array_equal(get(memory, VALUES.size, np.float32), VALUES)


def test_memory_ends(settings):
    settings(MEMORY=str(VALUES.nbytes))
    memory = put(VALUES)
    with pytest.raises(GpuError, match="no_resources.*out of memory"):
        call("allocate", 0, 1)
    call("free", 0, memory)
    call("free", 0, call("allocate", 0, VALUES.nbytes))


def test_calls_fail_as_wanted(settings, memory):
    settings(FAIL="zero:2,pin:1")
    with stream_of() as stream:
        call("zero", 0, memory, 8, stream)
        with pytest.raises(GpuError, match="internal.*zero fails"):
            call("zero", 0, memory, 8, stream)
        call("zero", 0, memory, 8, stream)
    with pytest.raises(GpuError, match="no_resources"):
        call("allocate_pinned", 0, 8)


def test_work_that_fails_breaks_its_device(settings):
    settings(FAIL="work:1", DEVICES="8")
    memory, event = call("allocate", 7, 8), call("make_event", 7)
    with stream_of(7) as stream:
        call("zero", 7, memory, 8, stream)
        finish(stream, 7)
        for name, arguments in (("done", (event,)), ("zero", (memory, 8, stream)), ("allocate", (8,))):
            with pytest.raises(GpuError, match="work fails"):
                call(name, 7, *arguments)
    call("free", 7, memory)
    call("destroy_event", 7, event)
    call("free", 0, call("allocate", 0, 8))


# What ends the process, and the words that say why. `m` is 100 bytes of memory, `s` a stream.
MISUSE = {
    "call('free', 0, m); call('free', 0, m)": "freed",
    "call('free', 0, m); call('zero', 0, m, 100, s)": "freed",
    "call('free', 0, m + 4)": "Free at device 0 of",
    "call('free_pinned', 0, m)": "FreePinned at device 0 of",
    "call('copy', 0, m + 50, m, 51, s)": "leaves 100 bytes",
    "call('zero', 0, id(m), 8, s)": "got host memory",
    "call('zero', 1, m, 8, None)": "at device 1 got 100 bytes",
    "call('zero', 1, m, 8, s)": "got a stream of device 0",
    "call('destroy_stream', 0, s); call('zero', 0, m, 8, s)": "destroyed",
    "ctypes.string_at(m, 1)": "the host touched",
}


def test_misuse_ends_the_process():
    program = (
        "import ctypes, json, os, resource, sys\n"
        "from tests.fake_gpu.gpu import *\n"
        "resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); functions(); said = []\n"
        "for case in json.load(sys.stdin):\n"
        "    read, write = os.pipe(); child = os.fork()\n"
        "    if child == 0:\n"
        "        os.dup2(write, 2); m = call('allocate', 0, 100); s = call('make_stream', 0); exec(case); os._exit(0)\n"
        "    os.close(write); words = os.fdopen(read).read(); said.append((os.waitpid(child, 0)[1], words))\n"
        "print(json.dumps(said))"
    )

    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, "FAKE_GPU_DEVICES": "2"},
        input=json.dumps(list(MISUSE)),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    for (case, words), (status, said) in zip(MISUSE.items(), json.loads(done.stdout)):
        assert os.WIFSIGNALED(status), f"{case} was forgiven"
        assert "fake GPU: " in said, case
        assert words in said, case
