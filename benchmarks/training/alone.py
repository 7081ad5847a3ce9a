"""`fit` on one rank beside `fit` without us: `python -m benchmarks.training.alone` (3 minutes), a part of `make bench`.

The same program takes up to 4 % more or less time from process to process, so both ways run in several processes, by
turns, on one core. In ours an optimizer that is not wrapped takes turns with the wrapped one.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Callable

from benchmarks.findings import Findings, machine, results_path
from benchmarks.ranks import environment_of_ranks
from benchmarks.report import console_of, finish
from benchmarks.targets import OURS, PLAIN, UNWRAPPED
from benchmarks.training.models import FIVE_MS, MODELS
from benchmarks.training.worker import Trainer

__all__ = ["measure_alone"]

TURNS, TURN_SECONDS, FIRST_STEPS = 3, 0.7, 5


def measure_alone(processes: int, say: Callable[[str], None], findings: Findings) -> None:
    """Measures both ways in so many processes each."""
    say(f"training on one core: {processes} processes each")
    environment = {**environment_of_ranks(), "OMP_NUM_THREADS": "1"}
    for way in (PLAIN, OURS) * processes:
        command = ["taskset", "-c", "0", sys.executable, "-m", "benchmarks.training.alone", "--way", way]
        printed = subprocess.run(command, env=environment, check=True, timeout=300, capture_output=True, text=True)
        for model, seconds in json.loads(printed.stdout.splitlines()[-1]).items():
            for who, taken in seconds.items():
                findings.alone.setdefault(model, {}).setdefault(who, []).append(taken)


def _trained(way: str) -> dict[str, dict[str, float]]:
    """One process's part: for each model the seconds of a step, by who trains."""
    from benchmarks.training.keras_fit import Optimizer, Plain

    class Unwrapped(Optimizer):
        """After `hvd.init`, without its optimizer."""

        def _wrapped(self, optimizer: object) -> object:
            return optimizer

    ways = {PLAIN: Plain} if way == PLAIN else {OURS: Optimizer, UNWRAPPED: Unwrapped}
    trainers = {who: kind(0, 1) for who, kind in ways.items()}
    return {model: _steps_of(trainers, model) for model in MODELS if model != FIVE_MS}


def _steps_of(trainers: dict[str, Trainer], model: str) -> dict[str, float]:
    for trainer in trainers.values():
        trainer.build(model)
    first = min([trainer.train(FIRST_STEPS) for trainer in trainers.values()])
    steps = max(5, round(TURN_SECONDS / first))
    turns = [[trainer.train(steps) for trainer in trainers.values()] for _ in range(TURNS)]
    return dict(zip(trainers, map(statistics.median, zip(*turns))))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument("--way", choices=(PLAIN, OURS), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.way:
        print(json.dumps(_trained(asked.way)))
        return
    findings, path = Findings(machine=machine()), results_path("alone")
    measure_alone(asked.processes, print, findings)
    finish(findings, path, console_of(150))


if __name__ == "__main__":
    main()
