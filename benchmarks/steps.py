"""Training steps, on one node and in the lab: starts `overlap` there and says what its times mean."""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
from collections.abc import Callable
from typing import Any

from benchmarks.findings import NODE, Findings
from benchmarks.lab import Lab, LabError
from benchmarks.measure import slowest_rank
from benchmarks.ranks import answers_of_ranks

__all__ = ["fraction_hidden", "measure_steps_in_lab", "measure_steps_on_node", "summary"]

MODELS = "MLP,transformer"
RUN_SECONDS = 240


def fraction_hidden(compute: float, communication: float, together: float) -> float:
    """1: the shorter of the two cost nothing; 0: one after the other; below 0: they disturbed each other."""
    return (compute + communication - together) / min(compute, communication)


def summary(place: str, ranks: int, of_ranks: list[dict[str, Any]]) -> dict[str, Any]:
    """One model's step from what every rank measured: medians of the slowest rank.

    `cores_need`: seconds that this machine's cores need at least for computing and communicating, network included.
    """
    medians = {
        what: statistics.median(slowest_rank([one["seconds"][what] for one in of_ranks]))
        for what in ("compute", "communication", "together")
    }
    first = {name: of_ranks[0][name] for name in ("model", "batch", "gradient_bytes")}
    busy = {what: statistics.median(of_ranks[0]["busy"][what]) for what in ("compute", "communication")}
    return {
        "place": place, "ranks": ranks, **first, **medians, "hidden": fraction_hidden(**medians),
        "cores_need": sum(busy.values()) / len(os.sched_getaffinity(0)),
    }  # fmt: skip


def measure_steps_on_node(say: Callable[[str], None], findings: Findings, ranks: int = 2) -> None:
    """Ranks on this machine; computing and reducing share its cores."""
    say(f"training steps: {MODELS}, {ranks} ranks on one node")
    with tempfile.TemporaryFile() as log:
        try:
            arguments = (str(ranks), "{folder}", MODELS)
            answers = answers_of_ranks("benchmarks.overlap", ranks, RUN_SECONDS, *arguments, log=log)
        except subprocess.SubprocessError as error:
            log.seek(0)
            findings.notes.append(f"smddp_tf, training steps: {error}\n{log.read().decode(errors='replace')[-2000:]}")
            return
    findings.steps += [summary(NODE, ranks, list(of_ranks)) for of_ranks in zip(*answers)]


def measure_steps_in_lab(
    say: Callable[[str], None], findings: Findings, nodes: int = 2, per_node: int = 2, rate: int = 200
) -> None:
    """Ranks on nodes of the lab: the link decides how long communicating takes."""
    place = f"lab {nodes}x{per_node} {rate}"
    say(f"training steps: {MODELS}, {place}")
    try:
        with Lab(nodes, rate) as lab:
            answers = lab.run(per_node, "", "benchmarks.overlap", str(nodes * per_node), "{folder}", MODELS)
    except LabError as error:
        findings.notes.append(f"smddp_tf, training steps, {place}: {error}")
        return
    findings.steps += [summary(place, nodes * per_node, list(of_ranks)) for of_ranks in zip(*answers)]
