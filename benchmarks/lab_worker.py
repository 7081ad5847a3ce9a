"""One rank of a candidate in the lab: `python -m benchmarks.lab_worker BACKEND RANKS FOLDER CASES` under mpirun.

Nodes share no memory and no socket with the orchestrator, only files: each rank writes its answers to
FOLDER/<rank>.json.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.backends import open_backend
from benchmarks.cases import Case

__all__ = ["main", "sent_bytes"]


def sent_bytes(device: str = "eth0") -> int:
    """What this node has sent so far, headers included, as the kernel counts."""
    for line in Path("/proc/net/dev").read_text(encoding="ascii").splitlines():
        name, _, counters = line.partition(":")
        if name.strip() == device:
            return int(counters.split()[8])
    return 0


def measure(backend: Any, case: Case, repetitions: int) -> dict[str, Any]:
    """Times one case on this rank. A failure (a wire dtype that the module does not know yet) is an answer too."""
    try:
        prepared = backend.prepare(case)
    except (TypeError, ValueError) as error:
        return {"failure": str(error).split("\n")[0]}
    seconds = []
    backend.barrier()
    before = sent_bytes()
    for _ in range(repetitions):
        backend.barrier()
        start = time.perf_counter()
        prepared.run()
        seconds.append(time.perf_counter() - start)
    backend.barrier()
    return {"wrong": prepared.wrong, "seconds": seconds, "sent": (sent_bytes() - before) / repetitions}


def main() -> None:
    """Measures all cases, each with its number of repetitions."""
    name, ranks, folder, cases = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), json.loads(sys.argv[4])
    rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
    backend = open_backend(name, rank, ranks)
    answers = [measure(backend, Case(**case["case"]), case["repetitions"]) for case in cases]
    (folder / f"{rank}.json").write_text(json.dumps(answers), encoding="utf-8")
    backend.close()


if __name__ == "__main__":
    main()
