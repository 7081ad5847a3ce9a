"""What is made of raw times: medians, percentiles, bandwidths. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

__all__ = [
    "Timing",
    "algorithm_bandwidth",
    "bus_bandwidth",
    "duration_text",
    "percentile",
    "slowest_rank",
    "three_digits",
    "wire_bound",
]


@dataclass(frozen=True)
class Timing:
    """Seconds of one collective: median, 10th and 90th percentile over the repetitions."""

    median: float
    p10: float
    p90: float
    repetitions: int

    @staticmethod
    def of(seconds: Sequence[float]) -> Timing:
        return Timing(statistics.median(seconds), percentile(seconds, 10), percentile(seconds, 90), len(seconds))


def percentile(values: Sequence[float], percent: float) -> float:
    """The value below which `percent` of them lie, interpolated between neighbours."""
    return float(np.percentile(values, percent))


def slowest_rank(seconds_of_ranks: Sequence[Sequence[float]]) -> list[float]:
    """A collective takes as long as its slowest rank: one figure for each repetition."""
    return [max(repetition) for repetition in zip(*seconds_of_ranks)]


def algorithm_bandwidth(size_bytes: int, seconds: float) -> float:
    """Bytes of the array per second."""
    return size_bytes / seconds


def bus_bandwidth(size_bytes: int, seconds: float, ranks: int) -> float:
    """Bytes per second that each rank must have sent at the least: comparable to a link."""
    return algorithm_bandwidth(size_bytes, seconds) * 2 * (ranks - 1) / ranks


def wire_bound(size_bytes: float, nodes: int, bits_per_second: float) -> float:
    """Seconds that an allreduce between nodes takes at the least: 2 (N-1)/N B / rate."""
    return 2 * (nodes - 1) / nodes * size_bytes * 8 / bits_per_second


def duration_text(seconds: float) -> str:
    """Three digits in a unit that suits: "12.3 ms"."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale * 0.9995 or unit == "us":
            break
    return f"{three_digits(seconds / scale)} {unit}"


def three_digits(value: float) -> str:
    """At least three digits: "0.584", "1.10", "12.3", "408"."""
    value = float(f"{value:.3g}") if value < 1000 else value  # 0.9999 has one digit before the point
    whole = len(str(int(value))) if value >= 1 else 0
    return f"{value:.{max(0, 3 - whole)}f}"
