from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from smddp_tf.insight.finding import Finding, NotSeen, Rule
from smddp_tf.insight.recording import Recording


@dataclass(frozen=True)
class SlowLink(Rule):
    """Ranks wait for a link that carries less than `hvd.init` has measured on it. Ours."""

    threshold: float = 50.0  # percent of what was measured
    least: float = 20.0  # percent of the step

    def check(self, recording: Recording) -> Iterator[Finding]:
        measured = max(facts["rail_bandwidth_mbps"] for facts in recording.facts.values())
        if measured <= 0:
            raise NotSeen("there is one node")
        _, share = recording.communication
        rates = {host: _rate(recording, host) for host in recording.hosts}
        slowest = min(rates, key=lambda host: rates[host], default="")
        if not rates or rates[slowest] < measured / 100:
            raise NotSeen("the network interfaces of the hosts do not count the traffic")
        if 100 * share >= self.least and rates[slowest] < self.threshold / 100 * measured:
            figures = {"rate": rates[slowest], "measured": measured, "share": 100 * share}
            yield Finding(share * (1 - rates[slowest] / measured), figures, slowest)


def _rate(recording: Recording, host: str) -> float:
    """Megabits per second that each rank of the host sends while its gradients are under way."""
    rows = [row for row, rank in enumerate(recording.ranks) if rank in recording.on(host)]
    sent = recording.while_training(recording.hosts[host])["sent"]
    reducing, seconds = (float(recording.aligned[name][rows].sum()) for name in ("reducing", "seconds"))
    return float(np.nanmean(sent)) * 8e-6 * seconds / reducing / len(rows) if sent.size and reducing else float("inf")
