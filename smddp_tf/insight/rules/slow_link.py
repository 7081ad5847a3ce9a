from dataclasses import dataclass

import numpy as np

from smddp_tf.insight.finding import Finding, NotSeen
from smddp_tf.insight.recording import Recording


@dataclass(frozen=True)
class SlowLink:
    """Ranks wait for a link that carries less than `hvd.init` has measured on it. Ours."""

    threshold: float = 50.0  # percent of what was measured
    least: float = 20.0  # percent of the step

    def check(self, recording: Recording) -> list[Finding]:
        measured = max(facts["rail_bandwidth_mbps"] for facts in recording.facts.values())
        if measured <= 0:
            raise NotSeen("there is one node")
        sums = {name: recording.aligned[name].sum(1) for name in ("seconds", "reducing", "exposed")}
        rates = {host: self._rate(recording, host) for host in recording.hosts}
        if max(rates.values(), default=0.0) < measured / 100:
            raise NotSeen("the network interfaces of the hosts do not count the traffic")
        share = float((sums["exposed"] / sums["seconds"]).min())
        slowest = min(rates, key=lambda host: rates[host])
        if 100 * share < self.least or rates[slowest] >= self.threshold / 100 * measured:
            return []
        return [
            Finding(
                "The network between the hosts is slower than it was at the start.",
                f"While gradients travel a rank sends {rates[slowest]:.0f} Mbit/s; `hvd.init` has measured "
                f"{measured:.0f}. Every rank waits for gradients during {100 * share:.0f} % of its steps, or more.",
                "Look for other traffic and the interface in use (`--network-interfaces`, `--fabric`); "
                "`compression=hvd.Compression.auto` sends fewer bytes.",
                share * (1 - rates[slowest] / measured),
                slowest,
            )
        ]

    def _rate(self, recording: Recording, host: str) -> float:
        """Megabits per second that each rank of the host sends while its gradients are under way."""
        rows = [row for row, rank in enumerate(recording.ranks) if recording.facts[rank]["host"] == host]
        sent = recording.while_training(recording.hosts[host])["sent"]
        if not rows or not sent.size:
            return float("inf")
        under_way = recording.aligned["reducing"][rows].sum() / recording.aligned["seconds"][rows].sum()
        return float(np.nanmean(sent) * 8e-6 / under_way / len(rows)) if under_way else float("inf")
