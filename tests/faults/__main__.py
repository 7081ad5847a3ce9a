"""Runs the failure cases and prints the table: `python -m tests.faults`."""

from __future__ import annotations

import argparse
import dataclasses
import os
import random
import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rich.console import Console

from benchmarks.lab import Lab
from tests.faults.case import Case, Found
from tests.faults.cases import CASES
from tests.faults.conduct import conduct
from tests.faults.places import lab_is_missing
from tests.faults.table import Row, as_table, save, update_page
from tests.support.mpirun import ROOT

_LAB_RATE = 200


def main() -> int:
    """Returns 1 when a promise was not kept."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("-k", metavar="PATTERN", default="", help="only cases whose name matches")
    parser.add_argument("--list", action="store_true", help="name the cases and do nothing")
    parser.add_argument("--no-lab", action="store_true", help="one machine only")
    parser.add_argument("--tcp", action="store_true", help="ranks that do without MPI")
    parser.add_argument("--once", action="store_true", help="no repetitions")
    parser.add_argument("--jobs", type=int, default=2, help="cases of one machine at a time (default 2)")
    parser.add_argument(
        "--output", type=Path, help="write PATH.json and PATH.md (default benchmarks/results/DATE-faults)"
    )
    parser.add_argument("--update-page", action="store_true", help="write the table into docs/reliability.md")
    parser.add_argument("--keep-output", action="store_true", help="show what the jobs of broken promises printed")
    options = parser.parse_args()
    cases = [dataclasses.replace(case, **case.over_tcp) for case in CASES] if options.tcp else CASES
    chosen = [case for case in cases if re.search(options.k, case.name)]
    if options.list:
        print("\n".join(f"{case.name} ({case.world}): {case.promise}" for case in chosen))
        return 0
    console = Console(width=200 if not sys.stdout.isatty() else None)
    here = [case for case in chosen if not case.nodes]
    if unable := [case.name for case in here if case.needs_root and os.geteuid() != 0]:
        console.print(f"left out: {', '.join(unable)}: needs root, for a small disk of its own")
    rows = [Row(case) for case in here if case.name not in unable]
    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(lambda row: _repeat(row, options, console, None), rows))
    rows += _in_lab([case for case in chosen if case.nodes], options, console)
    console.print(as_table(rows))
    if len(chosen) == len(CASES) or options.output:
        path = options.output or ROOT / "benchmarks" / "results" / time.strftime("%Y-%m-%d-%H%M-faults", time.gmtime())
        save(rows, path)
        console.print(f"written to {path}.json and .md")
    if options.update_page:
        update_page(rows)
    return int(any(row.wrong for row in rows))


def _in_lab(cases: list[Case], options: argparse.Namespace, console: Console) -> list[Row]:
    if not cases:
        return []
    if reason := "--no-lab" if options.no_lab else lab_is_missing():
        console.print(f"left out: {', '.join(case.name for case in cases)}: {reason}")
        return []
    rows = []
    for case in cases:
        with Lab(case.nodes, _LAB_RATE) as lab:
            rows.append(Row(case))
            _repeat(rows[-1], options, console, lab)
    return rows


def _repeat(row: Row, options: argparse.Namespace, console: Console, lab: Lab | None) -> None:
    moments = random.Random(row.case.name)  # the same in every run of this program
    for number in range(1 if options.once else row.case.repeat):
        begin = time.monotonic()
        try:
            found = conduct(row.case.again(number + 1), lab, moments.random(), options.tcp)
        except Exception as error:  # the table must come, whatever a case does
            found = Found(wrong=[f"the case itself failed: {type(error).__name__}: {error}"])
        row.found.append(found)
        verdict = "; ".join(found.wrong) or "ok"
        console.print(
            f"{row.case.name} [{number + 1}]: {verdict} ({time.monotonic() - begin:.0f} s)",
            markup=False,
            highlight=False,
        )
        if found.wrong and options.keep_output:
            console.print(found.output[-6000:], markup=False, highlight=False)


if __name__ == "__main__":
    sys.exit(main())
