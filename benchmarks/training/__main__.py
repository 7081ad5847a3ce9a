"""`python -m benchmarks.training`: that part of `make bench` alone (12 minutes; --quick: 3)."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from benchmarks.findings import Findings, machine, results_path
from benchmarks.report import console_of, finish
from benchmarks.training.models import MODELS
from benchmarks.training.suite import BY_NAME, Effort, effort, measure_training, not_installed


def main() -> None:
    """Ends with exit code 1 when the ranks of a candidate did not agree on the weights, or ours failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.training", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="only the MLP, 3 turns")
    parser.add_argument(
        "--only", default=";".join(BY_NAME), help="candidates, joined by semicolons; default: %(default)s"
    )
    parser.add_argument("--models", help=f"joined by commas; of: {', '.join(MODELS)}")
    parser.add_argument("--turns", type=int, help="of each model")
    parser.add_argument("--output", type=Path, help="results file")
    options = parser.parse_args()
    usual = effort(options.quick)
    models = tuple(options.models.split(",")) if options.models else usual.models
    how_long = Effort(options.turns or usual.turns, usual.seconds, models)
    console, begin = console_of(150), time.monotonic()

    def say(text: str) -> None:
        console.print(f"[{time.monotonic() - begin:4.0f} s] {text}", markup=False, highlight=False)

    findings = Findings(machine=machine())
    findings.notes += [f"{name}: not installed (make bench-peers, make bench-horovod)" for name in not_installed()]
    path = options.output or results_path("training")
    measure_training(options.only.split(";"), how_long, say, findings)
    finish(findings, path, console)
    if any(row.wrong for row in findings.rows) or any(note.startswith("smddp_tf") for note in findings.notes):
        raise SystemExit("something was wrong, see above")


if __name__ == "__main__":
    main()
