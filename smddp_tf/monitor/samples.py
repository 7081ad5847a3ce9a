"""Samples the resources that this process and its host use, by psutil and NVML. Linux only, as the engine is."""

from __future__ import annotations

import contextlib
import importlib
import re
import time
from pathlib import Path
from typing import Any

import psutil

from smddp_tf.monitor.files import HostSample, ProcessSample

_CHILDREN_EVERY = 4  # samples: to look for children reads /proc of every process of the host


class ProcessSampler:
    """Of this process. Made when recording begins; one thread."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._process.cpu_percent()  # the first answer is 0: it is since the last call
        self._read_before = self._process.io_counters().read_chars
        self._children: dict[psutil.Process, psutil.Process] = {}
        self._children_cpu = 0.0
        self._samples = 0

    def sample(self) -> ProcessSample:
        if self._samples % _CHILDREN_EVERY == 0:
            self._look_at_children()
        self._samples += 1
        with self._process.oneshot():
            read = self._process.io_counters()
            return {
                "time": time.time(), "cpu": self._process.cpu_percent(), "memory": self._process.memory_info().rss,
                "read_bytes": read.read_chars - self._read_before, "storage_read_bytes": read.read_bytes,
                "threads": self._process.num_threads(),
                "children": len(self._children), "children_cpu": self._children_cpu,
            }  # fmt: skip

    def _look_at_children(self) -> None:
        self._children = {child: self._children.get(child, child) for child in self._process.children(recursive=True)}
        self._children_cpu = 0.0
        for child in self._children.values():
            with contextlib.suppress(psutil.Error):  # it has ended
                self._children_cpu += child.cpu_percent()


class HostSampler:
    """Of this host: what /proc and the driver of NVIDIA's GPUs say. Made when recording begins; one thread."""

    def __init__(self) -> None:
        psutil.cpu_percent(percpu=True)
        psutil.cpu_times_percent()
        self._gpus = Gpus()
        self._before = time.monotonic(), _transferred()

    def sample(self) -> HostSample:
        (then, before), (now, after) = self._before, (time.monotonic(), _transferred())
        self._before = now, after
        read, written, sent, received = ((b - a) / max(now - then, 1e-3) for a, b in zip(before, after))
        running = re.search(r"procs_running (\d+)", Path("/proc/stat").read_text())
        memory = psutil.virtual_memory()
        return {
            "time": time.time(), "cpu": psutil.cpu_percent(percpu=True), "iowait": psutil.cpu_times_percent().iowait,
            "runnable": int(running[1]) if running else 0,
            "memory": memory.total - memory.available, "memory_total": memory.total,
            "disk_read": read, "disk_written": written, "sent": sent, "received": received,
            "gpu": self._gpus.uses(), "gpu_memory": self._gpus.memories(),
        }  # fmt: skip


class Gpus:
    """NVIDIA's GPUs of this host; none where nvidia-ml-py or the driver is missing."""

    def __init__(self) -> None:
        self._handles: list[Any] = []
        with contextlib.suppress(Exception):  # NVML has a class of errors for each reason
            self._nvml: Any = importlib.import_module("pynvml")
            self._nvml.nvmlInit()
            numbers = range(self._nvml.nvmlDeviceGetCount())
            self._handles = [self._nvml.nvmlDeviceGetHandleByIndex(number) for number in numbers]

    def names(self) -> list[str]:
        return [str(self._nvml.nvmlDeviceGetName(handle)) for handle in self._handles]

    def uses(self) -> list[float]:
        """Percent of the time since the driver's last sample."""
        return [float(self._nvml.nvmlDeviceGetUtilizationRates(handle).gpu) for handle in self._handles]

    def memories(self) -> list[float]:
        """Percent in use."""
        found = (self._nvml.nvmlDeviceGetMemoryInfo(handle) for handle in self._handles)
        return [100.0 * memory.used / memory.total for memory in found]


def _transferred() -> tuple[int, int, int, int]:
    disk, net = psutil.disk_io_counters(), psutil.net_io_counters()  # the first is None where there are no disks
    return getattr(disk, "read_bytes", 0), getattr(disk, "write_bytes", 0), net.bytes_sent, net.bytes_recv
