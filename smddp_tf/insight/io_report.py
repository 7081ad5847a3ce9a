"""io_report: whether storage is fast enough for the epochs one wants. Needs no TensorFlow."""

from __future__ import annotations

import importlib
import math
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from smddp_tf.monitor.bytes_read import bytes_read

# FSx for Lustre, SCRATCH_2: bytes/s for each step of capacity, and the step in TiB.
_LUSTRE_RATE, _LUSTRE_TIB = 240e6, 1.2
_BLOCK = 1 << 20


@dataclass(frozen=True)
class IoReport:
    """The result of `io_report`, for all ranks together; `print` shows it as text. Rates are bytes/s."""

    bytes: float  # of one epoch
    epoch_seconds: float  # what an epoch may take
    needed: float  # bytes / epoch_seconds
    cold: float | None  # when the files are not in memory; None: not measured
    warm: float | None  # when they are
    memory: float  # bytes that this host could keep of the files without taking it from programs
    lustre_steps: int  # of 1.2 TiB, which give `needed` on FSx for Lustre (SCRATCH_2): one, or an even number

    @property
    def advice(self) -> str:
        """The recommended changes, in sentences."""
        tips = []
        if self.warm is not None and self.warm < self.needed:
            tips.append(
                "Reading is too slow even from memory, so storage is not the limit: decode with "
                "map(num_parallel_calls=tf.data.AUTOTUNE), give each rank more cores, or use more ranks."
            )
        elif self.cold is not None and self.cold < self.needed:
            tips.append("Storage is too slow; epochs that come from memory are fast enough.")
        if self.bytes <= self.memory:
            tips.append("The data fit into this host's memory: from the second epoch on they come from its page cache.")
        else:
            tips.append(
                "The data do not fit into this host's memory: every epoch reads from storage. Let each rank read its "
                'part only, hvd.data.shard(dataset, by="file"); over several hosts the parts may then fit.'
            )
        return "\n".join(tips)

    def __str__(self) -> str:
        lines = [f"needed   {self.needed / 1e9:.3g} GB/s: {self.bytes / 1e9:.3g} GB in {self.epoch_seconds:g} s"]
        for name, rate in (("cold", self.cold), ("warm", self.warm)):
            if rate:
                lines.append(f"{name}     {rate / 1e9:.3g} GB/s: an epoch in {self.bytes / rate:.3g} s")
        size = self.lustre_steps * _LUSTRE_TIB
        lines.append(f"storage  FSx for Lustre, SCRATCH_2, {size:.1f} TiB: {self.lustre_steps} steps of 240 MB/s")
        return "\n".join([*lines, f"memory   {self.memory / 1e9:.3g} GB of this host are free for files", self.advice])


def io_report(
    *,
    bytes: float | None = None,
    epoch_seconds: float,
    files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = (),
    dataset: Iterable[Any] | None = None,
    ranks: int = 1,
) -> IoReport:
    """Compares the bytes/s that an epoch needs with those that are measured here, from storage and from memory.

    Use it before a large job, to choose its storage, and where input is slow, to see whether storage is why. With
    `files` or `dataset` this process reads twice: first after asking Linux to drop the files from memory, then again.

    Example:

    >>> report = hvd.insight.io_report(bytes=100e9, epoch_seconds=30)
    >>> round(report.needed / 1e9, 1), report.lustre_steps
    (3.3, 14)
    >>> print(hvd.insight.io_report(epoch_seconds=10, files=["model.keras"]))
    needed ...

    Args:
        bytes: number of bytes that all ranks together read in an epoch. Defaults to the size of `files`, else what the
            second pass has read.
        epoch_seconds: number, how long an epoch may take.
        files: paths, or one path, of files or folders. Defaults to those that `dataset`, a `tf.data.Dataset`, reads.
        dataset: what is gone through once in each pass, such as a `tf.data.Dataset`. Defaults to the bytes of `files`.
        ranks: integer, how many processes like this one read at the same time; what is measured counts so many times.
            Shared storage may give less. Defaults to 1.

    Returns:
        An `IoReport`.

    Raises:
        ValueError: there is nothing to compute the need from, or a number is not positive.
        OSError: a file cannot be read.

    Source: Amazon's guide of its data-parallel library: needed = bytes of the data / seconds of an epoch; 240 MB/s for
    each 1.2 TiB of SCRATCH_2. Capacities are 1.2 TiB, 2.4 TiB and multiples of that (FSx API, StorageCapacity).
    """
    paths = _files_of(files, dataset)
    cold, warm, read = None, None, 0
    if paths:
        for path in paths:
            _drop(path)
        cold, read = _pass(paths, dataset)
    if paths or dataset is not None:
        warm, read = _pass(paths, dataset)
    bytes = bytes or sum(path.stat().st_size for path in paths) or read
    if not bytes > 0 or not epoch_seconds > 0 or ranks < 1:
        raise ValueError(
            "io_report needs positive `bytes` (or `files`, or a `dataset`), `epoch_seconds` and `ranks`. "
            f" Received: bytes={bytes!r}, epoch_seconds={epoch_seconds!r}, ranks={ranks!r}."
        )
    needed = bytes / epoch_seconds
    steps = math.ceil(needed / _LUSTRE_RATE)
    steps += steps % 2 if steps > 1 else 0
    memory = importlib.import_module("psutil").virtual_memory().available
    return IoReport(bytes, epoch_seconds, needed, cold and cold * ranks, warm and warm * ranks, memory, steps)


def _files_of(files: Any, dataset: object) -> list[Path]:
    if not files and hasattr(dataset, "element_spec"):
        from smddp_tf.data.file_readers import look_into

        files = look_into(dataset).names
    given = [Path(each) for each in ([files] if isinstance(files, (str, os.PathLike)) else files)]
    return [file for path in given for file in (path, *path.rglob("*")) if not file.is_dir()]


def _drop(path: Path) -> None:
    """Asks Linux to forget the file's pages."""
    with path.open("rb") as file:
        os.fsync(file.fileno())  # pages that are not yet written stay
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _pass(paths: list[Path], dataset: Iterable[Any] | None) -> tuple[float, int]:
    """Goes through the data once; returns bytes/s and bytes."""
    begin, before = time.perf_counter(), bytes_read()
    for _ in map(_read, paths) if dataset is None else dataset:
        pass
    read = bytes_read() - before
    return read / (time.perf_counter() - begin), read


def _read(path: Path) -> None:
    with path.open("rb", buffering=0) as file:
        while file.read(_BLOCK):
            pass
