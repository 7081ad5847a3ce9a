"""Where the time of a step of `fit` goes: `python -m benchmarks.training.threads` (2 minutes).

The CPU time of the threads of a rank in a step, and how long they waited for a core, from the kernel's figures
(/proc/self/task/*/schedstat): of the program's thread, of TensorFlow's, and of the others, of which the engine's is the
one that works. 2 ranks, a thread of TensorFlow each; with us, and beside each other without us. The slower rank.
"""

from __future__ import annotations

import argparse
import json
import os
from collections import Counter
from pathlib import Path

from rich.table import Table

from benchmarks.findings import machine, results_path
from benchmarks.ranks import answers_of_ranks
from benchmarks.report import console_of
from benchmarks.targets import OURS, PLAIN
from benchmarks.training.common import WARM_STEPS
from benchmarks.training.models import MODELS

STEPS, RANKS, SECONDS = 60, 2, 120.0
WORKS = ("program", "TensorFlow", "engine and others")


def nanoseconds() -> Counter[tuple[str, str]]:
    """Of this process's threads so far: ("TensorFlow", "ran") and so on; "waited": for a core."""
    taken: Counter[tuple[str, str]] = Counter()
    for task in Path("/proc/self/task").iterdir():
        ran, waited, _ = map(int, (task / "schedstat").read_text(encoding="ascii").split())
        is_program, name = task.name == str(os.getpid()), (task / "comm").read_text(encoding="ascii")
        who = WORKS[0] if is_program else WORKS[1] if name.startswith("tf_") else WORKS[2]
        taken.update({(who, "ran"): ran, (who, "waited"): waited})
    return taken


def work(folder: Path, way: str, model: str) -> None:
    """A rank's part: milliseconds of a step, and of its threads."""
    from mpi4py import MPI

    from benchmarks.training.keras_fit import Optimizer, Plain

    ranks = MPI.COMM_WORLD
    trainer = {OURS: Optimizer, PLAIN: Plain}[way](ranks.Get_rank(), ranks.Get_size())
    trainer.build(model)
    trainer.train(WARM_STEPS)
    ranks.Barrier()
    before = nanoseconds()
    step = trainer.train(STEPS)
    taken = nanoseconds() - before
    of_threads = {
        f"{who} {what}": taken[who, what] / 1e6 / (STEPS + WARM_STEPS) for who in WORKS for what in ("ran", "waited")
    }
    answer = {"step": step * 1e3, **of_threads}
    (folder / f"{ranks.Get_rank()}.json").write_text(json.dumps(answer), encoding="ascii")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rank", nargs=3, metavar=("FOLDER", "WAY", "MODEL"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.rank:
        work(Path(asked.rank[0]), *asked.rank[1:])
        return
    found = {}
    for model in MODELS:
        for way in (PLAIN, OURS):
            words = ("--rank", "{folder}", way, model)
            found[f"{model}, {way}"] = answers_of_ranks("benchmarks.training.threads", RANKS, SECONDS, *words)
    table = Table("ms of a step", *next(iter(found.values()))[0], title="2 ranks, the slower one")
    for case, answers in found.items():
        slower = max(answers, key=lambda answer: answer["step"])
        table.add_row(case, *(f"{value:.2f}" for value in slower.values()))
    console_of(150).print(table)
    path = results_path("threads")
    path.write_text(json.dumps({"machine": machine(), "ranks": found}, indent=1) + "\n", encoding="utf-8")
    print(f"written to {path}")


if __name__ == "__main__":
    main()
