"""Prints as JSON how what poisson.py left in two jobs differs: `python compare_poisson.py ONE TWO_RANK0 TWO_RANK1`."""

from __future__ import annotations

import json
import sys

import numpy as np


def weights(file: np.lib.npyio.NpzFile) -> list[np.ndarray]:
    return [file[name] for name in sorted(file.files) if name.startswith("arr_")]


def distance(one: list[np.ndarray], other: list[np.ndarray]) -> float:
    """The largest over all variables of max |a - b| / max |a|."""
    assert len(one) == len(other)
    return max(float(np.max(np.abs(a - b)) / max(np.max(np.abs(a)), 1e-300)) for a, b in zip(one, other))


files = [np.load(name) for name in sys.argv[1:]]
one, first, second = map(weights, files)
loss_one, loss_first, loss_second = (file["losses"] for file in files)
stride = (len(loss_first) - 1) // (len(loss_one) - 1)  # passes for one update
loss_first, loss_second = loss_first[::stride], loss_second[::stride]
# On the whole: the mean of the residual's losses of both ranks is that of one process; the boundary's are equal.
whole = np.stack([(loss_first[:, 0] + loss_second[:, 0]) / 2, loss_first[:, 1]], 1)
found = {
    "ranks": [int(file["ranks"]) for file in files],
    "points": [len(file["points"]) for file in files],
    "losses_differ": bool(np.any(loss_first[:, 0] != loss_second[:, 0])),
    "moved": float(np.abs(loss_one[-1] / loss_one[0] - 1).max()),
    "between_ranks": distance(first, second),
    "difference": max(distance(one, first), distance([loss_one], [whole])),
}
print("COMPARED" + json.dumps(found))
