"""The recording of this process: who starts it, the thread that samples and writes, who ends it."""

from __future__ import annotations

import collections
import importlib
import itertools
import os
import socket
import threading
import time
from pathlib import Path
from typing import Any

from smddp_tf._native import loader
from smddp_tf._warn import warn
from smddp_tf.lifecycle import versions
from smddp_tf.monitor import files
from smddp_tf.monitor.lines import Lines, replace

_STOP_SECONDS = 10.0  # for a file system that does not answer
_current: Recording | None = None
_last: Recording | None = None  # of this process: a new session continues it


def current() -> Recording | None:
    """The recording that was started and not stopped, also where this rank cannot write it."""
    return _current


def start(folder: str | os.PathLike[str]) -> None:
    """Begins to record this rank's steps and the use of its process and host; all ranks call it.

    `smddprun --monitor DIR` does so when `hvd.init()` is called. What an earlier job has left in the folder is removed.
    A rank that cannot write there warns, and the job continues. `fit` records its steps, custom loops use `step`.

    Example:
    >>> hvd.monitor.start("/tmp/recording")
    >>> hvd.monitor.stop()

    Args:
        folder: string or path, the same one on all hosts, of this job alone. Made if need be.

    Raises:
        ValueError: before `init`, or a recording runs in another folder.
    """
    global _current, _last
    path = Path(folder).expanduser().absolute()
    if _current is not None:
        if _current.folder != path:
            raise ValueError(f"A recording runs, in {_current.folder}: stop it first. Received: folder={folder!r}.")
        return
    goes_on = _last is not None and (_last.folder, _last.facts["rank"]) == (path, loader.core().rank())
    _current = _last = Recording(path, _last if goes_on else None)


def stop() -> None:
    """Ends the recording; does nothing where none runs. `hvd.shutdown()` and the end of the program call it."""
    global _current
    recording, _current = _current, None
    if recording is not None:
        recording.stop()


def record(step: files.Step) -> None:
    """Adds a step to the recording, if there is one."""
    if _current is not None:
        _current.add(step)


class Recording:
    """The files of this rank, from the beginning to `stop`. `add` never waits; one thread of its own writes.

    It continues `before`, the recording of an earlier session of this process as the same rank.
    """

    def __init__(self, folder: Path, before: Recording | None) -> None:
        self.folder = folder
        self.facts = _facts()  # written again when they change
        self._steps: collections.deque[files.Step] = collections.deque()
        self._numbers: itertools.count[int] = itertools.count() if before is None else before._numbers
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="smddp_tf.monitor", daemon=True)
        if before is not None:
            self.facts["started"], self.facts["first_step"] = before.facts["started"], before.facts["first_step"]
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if before is None:
                self._remove_old()
            self._write_facts()
            self._thread.start()
        except OSError as error:
            self._give_up(error)

    def add(self, step: files.Step) -> None:
        step["step"] = next(self._numbers)
        if self.facts["first_step"] is None:
            self.facts["first_step"] = step["time"]
        if self._thread.is_alive():
            self._steps.append(step)

    def _write_facts(self) -> None:
        replace(files.rank_file(self.folder, self.facts["rank"]), self.facts)
        self._written = self.facts.copy()

    def stop(self) -> None:
        if self._thread.is_alive() and self.facts["pid"] == os.getpid():
            self._stop.set()
            self._thread.join(_STOP_SECONDS)

    def _run(self) -> None:
        samples = importlib.import_module("smddp_tf.monitor.samples")
        try:
            self._record_until_stopped(samples)
            self.facts["ended"] = time.time()
            self._write_facts()
        except (OSError, samples.psutil.Error) as error:
            self._give_up(error)

    def _record_until_stopped(self, samples: Any) -> None:
        rank, host = self.facts["rank"], self.facts["host"]
        steps = Lines(files.steps_file(self.folder, rank))
        sources = [(samples.ProcessSampler(), Lines(files.process_file(self.folder, rank)))]
        if self.facts["local_rank"] == 0:
            sources.append((samples.HostSampler(), Lines(files.host_file(self.folder, host))))
        first, stopped = True, False
        while not stopped:
            stopped = self._stop.wait(files.SAMPLE_SECONDS)
            for sampler, lines in sources if first or not stopped else []:
                lines.write([sampler.sample()])
            first = False
            steps.write([self._steps.popleft() for _ in range(len(self._steps))])
            if self.facts != self._written:
                self._write_facts()
        for _, lines in [*sources, (None, steps)]:
            lines.close()

    def _give_up(self, error: Exception) -> None:
        warn(
            f"Rank {self.facts['rank']} records nothing in {self.folder} from now on: {error}. The job goes on. "
            "smddprun --monitor needs a folder that this user can make, or write, on all hosts.",
            RuntimeWarning,
        )

    def _remove_old(self) -> None:
        """Removes the files of an earlier job: this rank's, and on rank 0 those of ranks that no longer exist."""
        rank, size = self.facts["rank"], self.facts["size"]
        for path in self.folder.glob("rank-[0-9][0-9][0-9][0-9][0-9].*"):
            if (number := int(path.name[5:10])) == rank or (rank == 0 and number >= size):
                path.unlink(missing_ok=True)
        if self.facts["local_rank"] == 0:
            for path in self.folder.glob(f"{files.host_file(self.folder, self.facts['host']).name}*"):
                path.unlink(missing_ok=True)


def _facts() -> files.RankFacts:
    core, samples = loader.core(), importlib.import_module("smddp_tf.monitor.samples")
    stats, nodes, node = core.stats(), core.cross_size(), core.cross_rank()
    return {
        "format": files.FORMAT, "rank": core.rank(), "size": core.size(), "local_rank": core.local_rank(),
        "local_size": core.local_size(), "host": socket.gethostname() + (f"-{node}" if nodes > 1 else ""),
        "node": node, "nodes": nodes, "pid": os.getpid(), "started": time.time(), "first_step": None, "ended": None,
        "cores": len(samples.psutil.Process().cpu_affinity()),
        "memory_total": samples.psutil.virtual_memory().total,
        "gpus": samples.Gpus().names(), "versions": versions.shown(), "rail_latency_us": stats["rail_latency_us"],
        "rail_bandwidth_mbps": stats["rail_bandwidth_mbps"], "clock": None,
    }  # fmt: skip
