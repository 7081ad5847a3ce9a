"""One rank of one candidate: `python -m benchmarks.worker BACKEND`. Does what the orchestrator says over a socket.

Between commands it waits in recv(), and the orchestrator stops the whole process, threads of its library included.
"""

from __future__ import annotations

import gc
import json
import os
import socket
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

from benchmarks.backends import Prepared, open_backend
from benchmarks.cases import Case
from benchmarks.reference import Group

__all__ = ["serve_rank"]

# The rank as the launcher tells it: Open MPI, MPICH, ourselves.
RANK_VARIABLES = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "SMDDP_BENCH_RANK")


class Worker:
    """Answers commands; each method is one."""

    def __init__(self, backend: str, rank: int, ranks: int) -> None:
        self._barrier = Group(os.environ["SMDDP_BENCH_BARRIER"], rank, ranks).barrier
        self._backend = open_backend(backend, rank, ranks)
        self._prepared: Prepared | None = None

    def about(self) -> dict[str, Any]:
        return self._backend.about()

    def prepare(self, case: dict[str, Any]) -> dict[str, Any]:
        """Checks the case; answers how many elements were wrong and about how long one run takes."""
        self._prepared = self._backend.prepare(Case(**case))
        self._prepared.run()
        start = time.perf_counter()
        self._prepared.run()
        return {"wrong": self._prepared.wrong, "seconds": time.perf_counter() - start}

    def time(self, repetitions: int) -> list[float]:
        """Seconds of each repetition. One more before them is not counted: this candidate has just slept."""
        assert self._prepared, "time before prepare"
        run, barrier, clock = self._prepared.run, self._barrier, time.perf_counter
        run()
        seconds = []
        for _ in range(repetitions):
            barrier()
            start = clock()
            run()
            seconds.append(clock() - start)
        return seconds

    def forget(self) -> None:
        self._prepared = None
        gc.collect()

    def cost(self, **arguments: Any) -> Any:
        return self._backend.cost(**arguments)  # type: ignore[attr-defined]

    def close(self) -> None:
        self._backend.close()


def serve_rank(kind: Callable[[str, int, int], Any] = Worker) -> None:
    """Connects, says which rank this is, and serves until told to close or the orchestrator is gone.

    Args:
        kind: makes what answers the commands, of the backend's name, the rank and the number of ranks.
    """
    rank = next(int(os.environ[name]) for name in RANK_VARIABLES if name in os.environ)
    ranks = int(os.environ["SMDDP_BENCH_RANKS"])
    with socket.socket(socket.AF_UNIX) as channel:
        channel.connect(os.environ["SMDDP_BENCH_SOCKET"])
        with channel.makefile("rw", encoding="utf-8") as lines:
            _serve(lines, lambda: kind(sys.argv[1], rank, ranks), rank)


def _serve(lines: Any, make: Callable[[], Any], rank: int) -> None:
    def say(reply: dict[str, Any]) -> None:
        lines.write(json.dumps(reply) + "\n")
        lines.flush()

    say({"rank": rank, "pid": os.getpid()})
    worker = None
    try:
        for line in lines:
            command = json.loads(line)
            what = command.pop("do")
            if what == "open":
                worker = make()
                say({"value": worker.about()})
                continue
            say({"value": getattr(worker, what)(**command)})
            if what == "close":
                return
    except BaseException:
        say({"error": traceback.format_exc()})
        raise


if __name__ == "__main__":
    serve_rank()
