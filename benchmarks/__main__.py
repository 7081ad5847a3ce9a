"""`python -m benchmarks`: measures everything that this machine can, in one call, and prints it beside the targets."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from benchmarks.findings import Findings, load, machine, save
from benchmarks.lab import TARGETS, measure_lab, why_not
from benchmarks.launch import measure_launch
from benchmarks.peers import CANDIDATES, ROOT, not_installed
from benchmarks.plots import plot_all
from benchmarks.report import show
from benchmarks.steps import measure_steps_in_lab, measure_steps_on_node
from benchmarks.suites import FULL, QUICK, Effort, measure_cost, measure_node
from benchmarks.training import suite as training
from benchmarks.training.alone import measure_alone

__all__ = ["main"]

PARTS = ("node", "steps", "training", "alone", "cost", "launch", "lab", "lab-steps")
LAB_PARTS = {"lab", "lab-steps"}
RESULTS = ROOT / "benchmarks" / "results"


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="about 10 minutes: fewer sizes and repetitions, no lab")
    parser.add_argument("--only", help=f"candidates, joined by commas, of: {', '.join(CANDIDATES)}")
    parser.add_argument(
        "--doors",
        help=f"kinds of case, joined by commas, of: {', '.join(FULL.doors)}",
    )
    parser.add_argument("--ranks", help="numbers of ranks, joined by commas")
    parser.add_argument("--parts", default=",".join(PARTS), help="joined by commas; default: %(default)s")
    parser.add_argument("--output", type=Path, help=f"results file; default: a dated one in {RESULTS}")
    parser.add_argument("--plots", action="store_true", help="with pictures beside the results file (matplotlib)")
    parser.add_argument("--show", nargs="+", type=Path, metavar="FILE", help="only print the tables of results files")
    options = parser.parse_args(arguments)
    for name, known in (("parts", PARTS), ("doors", FULL.doors), ("only", CANDIDATES)):
        if unknown := set((getattr(options, name) or "").split(",")) - {"", *known}:
            parser.error(f"--{name}: there is no {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    return options


def main() -> None:
    """Ends with exit code 1 when an element was wrong or our engine failed; a target missed is no failure."""
    options = parse()
    console = Console(width=160 if not sys.stdout.isatty() else None)
    if options.show:
        present(load(options.show), options.show[0] if options.plots else None, console)
        return
    findings = Findings(machine=machine())
    findings.notes += [f"{name}: not installed (make bench-peers, make bench-horovod)" for name in not_installed()]
    try:
        measure(options, findings, console)
    except KeyboardInterrupt:
        findings.notes.append("interrupted: what was measured until then is kept")
    path = options.output or RESULTS / time.strftime("%Y-%m-%d-%H%M.json", time.gmtime())
    save(findings, path)
    present(findings, path if options.plots else None, console)
    console.print(f"written to {path}")
    if any(row.wrong for row in findings.rows) or any(note.startswith("smddp_tf") for note in findings.notes):
        raise SystemExit("something was wrong, see above")


def present(findings: Findings, plots_beside: Path | None, console: Console) -> None:
    """Tables, and pictures beside a results file."""
    show(findings, console)
    if plots_beside:
        for picture in plot_all(findings, plots_beside.with_suffix("")):
            console.print(f"plot: {picture}")


def measure(options: argparse.Namespace, findings: Findings, console: Console) -> None:
    """Runs the parts that were asked for."""
    begin = time.monotonic()

    def say(text: str) -> None:
        console.print(f"[{time.monotonic() - begin:4.0f} s] {text}", markup=False, highlight=False)

    names = options.only.split(",") if options.only else list(CANDIDATES)
    parts = set(options.parts.split(","))
    if options.quick:
        parts -= LAB_PARTS
    if parts & LAB_PARTS and (reason := why_not()):
        findings.notes.append(f"no lab: {reason}")
        parts -= LAB_PARTS
    if "node" in parts:
        measure_node(effort_of(options), [name for name in names if CANDIDATES[name].installed], say, findings)
    if "steps" in parts:
        measure_steps_on_node(say, findings)
    if "training" in parts:
        training.measure_training([*training.BY_NAME], training.effort(options.quick), say, findings)
    if "alone" in parts:
        measure_alone(1 if options.quick else 5, say, findings)
    if "cost" in parts:
        measure_cost(say, findings)
    if "launch" in parts:
        measure_launch(3 if options.quick else 9, say, findings)
    if "lab" in parts:
        measure_lab(TARGETS, say, findings)
    if "lab-steps" in parts:
        measure_steps_in_lab(say, findings)
    say("done")


def effort_of(options: argparse.Namespace) -> Effort:
    """QUICK or FULL, narrowed to what the command line names."""
    effort = QUICK if options.quick else FULL
    if options.ranks:
        effort = replace(effort, ranks=tuple(map(int, options.ranks.split(","))))
    if options.doors:
        effort = replace(effort, doors=tuple(options.doors.split(",")))
    return effort


if __name__ == "__main__":
    main()
