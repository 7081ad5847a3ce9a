"""What a process of a soak run holds, and the check that it does not grow."""

from __future__ import annotations

import gc
import os

import smddp_tf as hvd


def usage() -> dict[str, int]:
    """Of this process: memory in KiB, open files, mapped pieces of shared memory, names of it, threads."""
    gc.collect()
    with open("/proc/self/statm", encoding="ascii") as statm:
        pages = int(statm.read().split()[1])
    with open("/proc/self/maps", encoding="ascii") as maps:
        mapped = sum("smddp" in line for line in maps if "/dev/shm" in line)
    return {
        "memory": pages * os.sysconf("SC_PAGE_SIZE") // 1024,
        "files": len(os.listdir("/proc/self/fd")),
        "mapped": mapped,
        "names": sum(f"-{os.getpid()}-" in name for name in os.listdir("/dev/shm") if name.startswith("smddp")),
        "threads": len(os.listdir("/proc/self/task")),
    }


def check_flat(seen: list[dict[str, int]]) -> None:
    """The last of `seen` may be no more than the one in the middle; memory may be 5% and 16 MiB more."""
    early, last = seen[len(seen) // 2], seen[-1]
    print(f"rank {hvd.rank() if hvd.is_initialized() else '-'}: {early} -> {last}", flush=True)
    for what in ("files", "mapped", "names", "threads"):
        assert last[what] <= early[what], f"{what} grew from {early[what]} to {last[what]}"
    most = early["memory"] * 1.05 + 16 * 1024
    assert last["memory"] <= most, f"memory grew from {early['memory']} to {last['memory']} KiB"
