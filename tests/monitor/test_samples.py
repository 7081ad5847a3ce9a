"""What processes, hosts and GPUs use, as psutil and the driver say it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from smddp_tf.monitor import files, samples


def test_what_a_process_uses(tmp_path: Path) -> None:
    """A child that computes, a file that is read, memory that is held."""
    file = tmp_path / "data"
    file.write_bytes(b"x" * 3_000_000)
    child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        sampler, began = samples.ProcessSampler(), time.monotonic()
        first, of_child = sampler.sample(), cpu_seconds(child)
        held = bytearray(os.urandom(1 << 20) * 40)
        file.read_bytes()
        until = time.process_time() + 0.3
        while time.process_time() < until or cpu_seconds(child) < of_child + 0.3:
            pass
        found = [sampler.sample() for _ in range(samples._CHILDREN_EVERY)]
        share = 100 * 0.3 / (time.monotonic() - began)  # at least; little where others compute too
    finally:
        child.kill()
        child.wait(10)
    assert first["children"] == 1
    assert found[0]["cpu"] > 0.8 * share
    assert found[-1]["children_cpu"] > 0.8 * share
    assert found[0]["memory"] - first["memory"] > 0.9 * len(held)
    assert 3_000_000 <= found[0]["read_bytes"] - first["read_bytes"] < 6_000_000
    assert first["threads"] >= 1
    assert set(first) == set(files.ProcessSample.__annotations__)


def cpu_seconds(process: subprocess.Popen[bytes]) -> float:
    return sum(psutil.Process(process.pid).cpu_times()[:2])


def test_what_a_host_uses(tmp_path: Path) -> None:
    sampler, began = samples.HostSampler(), time.monotonic()
    with (tmp_path / "data").open("wb") as file:
        file.write(b"x" * 8_000_000)
        os.fsync(file.fileno())
    until = time.process_time() + 0.3
    while time.process_time() < until:
        pass
    found = sampler.sample()
    share = 100 * 0.3 / (time.monotonic() - began)  # at least
    assert set(found) == set(files.HostSample.__annotations__)
    assert len(found["cpu"]) == os.cpu_count()
    assert sum(found["cpu"]) > 0.6 * share
    assert found["runnable"] >= 1
    assert 0 < found["memory"] < found["memory_total"]
    assert len(found["gpu"]) == len(found["gpu_memory"])
    assert min(found["disk_read"], found["disk_written"], found["sent"], found["received"]) >= 0


def test_gpus_as_the_driver_says_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """No GPU here: a module in the place of nvidia-ml-py, with its names."""

    class Found:
        gpu, used, total = 75, 30, 40

    class Nvml:
        nvmlInit = staticmethod(lambda: None)
        nvmlDeviceGetCount = staticmethod(lambda: 2)
        nvmlDeviceGetHandleByIndex = staticmethod(lambda number: number)
        nvmlDeviceGetName = staticmethod(lambda handle: f"GPU {handle}")
        nvmlDeviceGetUtilizationRates = nvmlDeviceGetMemoryInfo = staticmethod(lambda handle: Found)

    monkeypatch.setitem(sys.modules, "pynvml", Nvml)
    gpus = samples.Gpus()
    assert gpus.names() == ["GPU 0", "GPU 1"]
    assert gpus.uses() == [75.0, 75.0]
    assert gpus.memories() == [75.0, 75.0]
