"""The targets of the GPU path, each evaluated on what a run found out. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.measure import duration_text
from benchmarks.targets import Verdict

__all__ = ["Row", "bandwidth", "bound_of_ranks", "copy_rate", "find_row", "median_of_ranks", "verdicts"]

Row = dict[str, Any]
Report = dict[str, Any]

FRACTION = 0.85  # of the device's own copies
OVER_COPIES = 2.0  # one launch against a cudaMemcpyAsync for each tensor
WEIGHTS = 1e-5  # relative error after 3 epochs in float32, without TensorFloat-32
LATE_RANK = 0.75  # seconds; the other ranks come twice as late (benchmarks/gpu/ranks.py)
OURS = "smddp_tf"
EACH = "cudaMemcpyAsync each"


def answer_of(report: Report, part: str) -> Report:
    """What a part answered; empty when it did not."""
    return report["parts"].get(part, {}).get("answer") or {}


def find_row(report: Report, part: str, what: str, how: str) -> Row | None:
    """The row of a measurement, or None."""
    rows = answer_of(report, part).get("rows", [])
    return next((row for row in rows if row["what"] == what and row["how"] == how), None)


def bandwidth(row: Row) -> float:
    """Bytes read and written per second, of the median."""
    return row["bytes"] / row["median"]


def copy_rate(report: Report, what: str = "device copy", how: str = "large") -> float | None:
    """Bytes per second of a copy: within the device those read and those written, else those that cross the bus."""
    row = find_row(report, "bandwidth", what, how)
    return bandwidth(row) if row else None


def median_of_ranks(answers: list[Report], name: str) -> float | None:
    """Seconds of the slowest rank, the median over the steps."""
    per_rank = [row["seconds"] for answer in answers for row in answer.get("rows", []) if row["list"] == name]
    if not per_rank:
        return None
    slowest = sorted(max(step) for step in zip(*per_rank))
    return slowest[len(slowest) // 2]


def bound_of_ranks(report: Report, stage: str, ranks: int, size: int) -> float | None:
    """Seconds that an allreduce of `size` bytes on each of `ranks` ranks of one GPU takes at the least.

    "host": every rank's bytes cross the bus once in each direction, which may happen at the same time. "nccl" with GPUs
    that are not known: none.
    """
    if stage == "nccl":
        return None
    there, back = copy_rate(report, "copy to host", "pinned"), copy_rate(report, "copy from host", "pinned")
    return ranks * size / min(there, back) if there and back else None


def verdicts(report: Report) -> list[Verdict]:
    """Every target, in the order of the table. Of a fake GPU nothing is judged but what is right or wrong."""
    found = list(_correct(report))
    if not report["fake"]:
        found += [*_bandwidths(report), *_over_copies(report)]
    return found


def _correct(report: Report) -> Iterator[Verdict]:
    if "kernels" in report["parts"]:
        kernels = answer_of(report, "kernels")
        detail = f"{kernels.get('cases', 0)} comparisons"
        yield Verdict("kernels: elements unlike the CPU's", 0, True, kernels.get("wrong"), "", detail)
    if "bandwidth" in report["parts"]:
        wrong = answer_of(report, "bandwidth").get("wrong")
        yield Verdict("timed packing: wrong elements", 0, True, wrong, "")
    if group := answer_of(report, "nccl group of 1"):
        detail = f"NCCL {group.get('version', 'absent')}"
        yield Verdict("nccl group of 1: wrong elements", 0, True, group.get("wrong"), "", detail)
    for part in [part for part in report["parts"] if part.startswith("ranks")]:
        answers = answer_of(report, part).get("ranks") or []
        expected = report["parts"][part].get("expected_ranks")
        rows = [row for answer in answers for row in answer.get("rows", [])]
        whole = len(answers) == expected and rows and not any("error" in answer for answer in answers)
        way = report["parts"][part].get("way")
        yield Verdict(
            f"{part}: wrong elements",
            0,
            True,
            sum(row["wrong"] for row in rows) if whole else None,
            "",
            f"the ranks agreed on {way}" if way else "",
        )
        waited = answers[0].get("later_work_seconds") if whole else None
        yield Verdict(f"{part}: later work waits for a late rank", LATE_RANK, True, waited, " s")
    for part in [part for part in report["parts"] if part.startswith("training ")]:
        answers = answer_of(report, part).get("ranks") or []
        runs = [run for answer in answers for run in answer.get("runs", [])]
        bad = sum(
            not run["same_weights"] or run["losses"][-1] >= run["losses"][0] or not run["error"] <= WEIGHTS
            for run in runs
        )
        bad += sum("error" in answer for answer in answers)
        yield Verdict(f"{part}: runs that failed or with wrong loss or weights", 0, True, bad if runs else None, "")
        error = max((run["error"] for run in runs), default=None)
        yield Verdict(f"{part}: weights unlike one process's, relative", WEIGHTS, True, error, "")
    for part in [part for part in report["parts"] if part.startswith("sanitizer")]:
        yield Verdict(f"{part}: errors", 0, True, answer_of(report, part).get("errors"), "")


def _bandwidths(report: Report) -> Iterator[Verdict]:
    mark = copy_rate(report)
    for row in answer_of(report, "bandwidth").get("rows", []):
        if row["how"] == OURS:
            share = bandwidth(row) / mark if mark else None
            detail = f"{duration_text(row['median'])}, {bandwidth(row) / 1e9:.0f} GB/s"
            yield Verdict(f"{row['what']}: share of the copy bandwidth", FRACTION, False, share, "", detail)


def _over_copies(report: Report) -> Iterator[Verdict]:
    for row in answer_of(report, "bandwidth").get("rows", []):
        if row["how"] == EACH:
            ours = find_row(report, "bandwidth", row["what"], OURS)
            ratio = row["median"] / ours["median"] if ours else None
            detail = f"{duration_text(ours['median'])} against {duration_text(row['median'])}" if ours else ""
            yield Verdict(f"{row['what']}: faster than a copy each", OVER_COPIES, False, ratio, "x", detail)
