"""Findings as pictures: bandwidth against size, with the bound drawn in. Needs matplotlib (`pip install .[bench]`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.findings import NODE, Findings
from benchmarks.measure import bus_bandwidth
from benchmarks.targets import lab_shape

__all__ = ["curves", "plot_all"]

BOUND = "one pass"


def curves(findings: Findings, place: str, ranks: int, door: str) -> dict[str, list[tuple[int, float]]]:
    """Candidate -> (bytes, bus bandwidth in bytes per second), by size."""
    found: dict[str, list[tuple[int, float]]] = {}
    for row in sorted(findings.rows, key=lambda row: row.bytes):
        if (row.place, row.ranks, row.door) == (place, ranks, door) and not row.model:
            point = (row.bytes, bus_bandwidth(row.bytes, row.median, ranks))
            found.setdefault(row.candidate, []).append(point)
    return found


def plot_all(findings: Findings, stem: Path) -> list[Path]:
    """Writes <stem>-<place>-np<ranks>-<door>.png for every place, ranks and door with more than one size."""
    written = []
    for place, ranks, door in sorted({(row.place, row.ranks, row.door) for row in findings.rows if row.ranks > 1}):
        found = curves(findings, place, ranks, door)
        if max(map(len, found.values()), default=0) > 1:
            path = stem.with_name(f"{stem.name}-{place.replace(' ', '-')}-np{ranks}-{door}.png")
            _plot(found, f"{place}, {ranks} ranks, {door}", _wire_limit(place), path)
            written.append(path)
    return written


def _wire_limit(place: str) -> float | None:
    """The bus bandwidth that a rank would see if its node's link were all that counts.

    A node must send 2 (N-1)/N B; bus bandwidth counts 2 (P-1)/P B. In bytes per second.
    """
    if place == NODE:
        return None
    nodes, per_node, rate = lab_shape(place)
    ranks = nodes * per_node
    return rate * 1e6 / 8 * ((ranks - 1) / ranks) / ((nodes - 1) / nodes)


def _plot(found: dict[str, list[tuple[int, float]]], title: str, limit: float | None, path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 5))
    for name, points in found.items():
        style: dict[str, Any] = {"linestyle": "--", "color": "black"} if name == BOUND else {"marker": "o"}
        label = "bound: one pass over the array" if name == BOUND else name
        axes.plot([size for size, _ in points], [rate / 1e9 for _, rate in points], label=label, **style)
    if limit:
        axes.axhline(limit / 1e9, linestyle="--", color="black", label="bound: the link")
    axes.set(xscale="log", yscale="log", xlabel="bytes", ylabel="bus bandwidth, GB/s", title=title)
    axes.grid(True, which="major", alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=110, bbox_inches="tight")
    pyplot.close(figure)
