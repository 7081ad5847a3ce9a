"""Rules on the communication of gradients. Both are ours."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from smddp_tf.insight.finding import Finding, Parameters, rule
from smddp_tf.insight.recording import NotSeen, Recording


@rule("NothingHidden")
def nothing_hidden(recording: Recording, given: Parameters) -> Iterator[Finding]:
    """Gradients are reduced after the computation instead of during it."""
    if recording.size < 2:
        raise NotSeen("there is one rank")
    open_, share = (100 * value for value in recording.communication)
    if open_ >= given.threshold and share >= given.least:
        yield Finding(share / 100, {"open": open_, "share": share})


@rule("SlowLink")
def slow_link(recording: Recording, given: Parameters) -> Iterator[Finding]:
    """Ranks wait for a link that carries less than `hvd.init` has measured on it."""
    measured = max(facts["rail_bandwidth_mbps"] for facts in recording.facts.values())
    if measured <= 0:
        raise NotSeen("there is one node")
    _, share = recording.communication
    rates = {host: _rate(recording, host) for host in recording.hosts}
    slowest = min(rates, key=lambda host: rates[host], default="")
    if not rates or rates[slowest] < measured / 100:
        raise NotSeen("the network interfaces of the hosts do not count the traffic")
    if 100 * share >= given.least and rates[slowest] < given.threshold / 100 * measured:
        figures = {"rate": rates[slowest], "measured": measured, "share": 100 * share}
        yield Finding(share * (1 - rates[slowest] / measured), figures, slowest)


def _rate(recording: Recording, host: str) -> float:
    """Returns the megabits per second that each rank of the host sends while its gradients are reduced."""
    rows = [row for row, rank in enumerate(recording.ranks) if rank in recording.on(host)]
    sent = recording.hosts_while_training[host]["sent"]
    reducing, seconds = (float(recording.aligned[name][rows].sum()) for name in ("reducing", "seconds"))
    return float(np.nanmean(sent)) * 8e-6 * seconds / reducing / len(rows) if sent.size and reducing else float("inf")
