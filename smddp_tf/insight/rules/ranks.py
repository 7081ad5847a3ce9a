"""Rules on ranks that take longer than those they are equal to. Both are ours."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from smddp_tf.insight.finding import Finding, Parameters, rule
from smddp_tf.insight.recording import NotSeen, Recording
from smddp_tf.insight.rules.spans import BLOCK, blocks, longest_run
from smddp_tf.insight.rules.waiting import waiting_hosts


@rule("LateRank")
def late_rank(recording: Recording, given: Parameters) -> Iterator[Finding]:
    """A rank takes longer than the others on equal hosts, which wait for its gradients."""
    groups = [rows for rows in recording.groups.values() if len(rows) > 1]
    if not groups or recording.aligned["step"].size < given.patience:
        raise NotSeen(f"it needs {given.patience} steps of two ranks on equal hosts")
    slow_inputs = {each.host for each in waiting_hosts(recording, given.waiting)}
    for rows in groups:
        for index in range(len(rows)):
            for found in _late(recording, rows, index, given.threshold):
                excused = found.case == "input" and not slow_inputs.isdisjoint((found.host, None))
                if found.figures["steps"] >= given.patience and 100 * found.lost >= given.least and not excused:
                    yield found


def _late(recording: Recording, rows: list[int], index: int, threshold: float) -> Iterator[Finding]:
    """Yields a finding for the rank at this index of the rows, if it is late in any blocks of steps."""
    steps = {name: blocks(recording.aligned[name][rows]) for name in ("own", "input", "computation", "seconds")}
    steps["exposed"] = blocks(recording.aligned["exposed"][rows], np.mean)  # not every step reduces gradients
    seconds = steps["seconds"][index]
    excess = steps["own"][index] - np.percentile(steps["own"], 50, axis=0, method="lower")
    others_wait = np.delete(steps["exposed"], index, axis=0).max(0) > steps["exposed"][index]
    span = longest_run((excess > threshold / 100 * seconds) & others_wait)
    if span.first == span.end:
        return
    late = {name: table[:, span.blocks] for name, table in steps.items()}
    mine = {name: 1e3 * float(np.median(table[index])) for name, table in late.items()}
    rest = {name: 1e3 * float(np.median(np.delete(table, index, axis=0))) for name, table in late.items()}
    rank = recording.ranks[rows[index]]
    part = max(("input", "computation"), key=lambda name: mine[name] - rest[name])
    figures = {
        **span.figures(recording.aligned["step"]), "steps": BLOCK * (span.end - span.first),
        "mine": mine[part], "others": rest[part], "wait": rest["exposed"], "exposed": mine["exposed"],
    }  # fmt: skip
    lost = float(excess[span.blocks].sum() / seconds.sum())
    yield Finding(lost, figures, recording.facts[rank]["host"], rank, figures["since"][0], part)


@rule("DifferentSpeeds")
def different_speeds(recording: Recording, given: Parameters) -> Iterator[Finding]:
    """All ranks of a host compute longer than those of the other hosts, by so many percent."""
    steps, groups = recording.aligned, recording.groups
    if len(groups) < 2 or not steps["step"].size:
        raise NotSeen("it needs steps of two hosts with two ranks each")
    # Of each host's fastest rank: a single slow one is LateRank's.
    takes = {host: float(np.median(steps["computation"][rows], axis=1).min()) for host, rows in groups.items()}
    usual = float(np.percentile(list(takes.values()), 50, method="lower"))
    for host, seconds in takes.items():
        if seconds > usual * (1 + given.threshold / 100):
            lost = (seconds - usual) / float(np.median(steps["seconds"]))
            yield Finding(lost, {"mine": 1e3 * seconds, "others": 1e3 * usual}, host)
