"""What of two outcomes differs, and by how much it may."""

from __future__ import annotations

import hashlib

import numpy as np

from tests.random.alone import Outcome
from tests.random.case import Case

FLOAT64, FLOAT32 = 1e-10, 1e-5
COUNTED = 1e-6  # metrics of Keras count in float32


def differences(case: Case, got: Outcome, expected: Outcome) -> list[str]:
    """A line for each array that is too far from what is expected; parts that other ranks have are left out."""
    found = []
    for name in sorted({*got, *expected}, key=lambda name: (not name.startswith("weights "), name)):
        if _is_counted_by_batches(case, name):
            continue
        if name not in got or name not in expected:
            if not name.startswith("weights table"):
                found.append(f"{name}: only {'expected' if name in expected else 'found'}")
            continue
        far = distance(got[name], expected[name])
        if not far <= _tolerance(case, name):
            found.append(f"{name}: off by {far:.1e}, {_shown(got[name])} in place of {_shown(expected[name])}")
    return found


def distance(got: np.ndarray, expected: np.ndarray) -> float:
    """The norm of the difference, relative to the norm of what is expected, or to 1e-3 where that is near 0."""
    if got.shape != expected.shape:
        return float("inf")
    got, expected = got.astype(float), expected.astype(float)
    return float(np.linalg.norm(got - expected) / (np.linalg.norm(expected) + 1e-3))


def fingerprint(outcome: Outcome) -> dict[str, str]:
    """Of what must be equal on all ranks, bit by bit."""
    return {
        name: hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
        for name, value in outcome.items()
        if name == "iterations" or (name.startswith("weights ") and not name.startswith("weights table"))
    }


def apart(fingerprints: list[dict[str, str]]) -> list[str]:
    """A line for each array that ranks have not alike."""
    return [
        f"{name}: the ranks differ"
        for name in sorted(fingerprints[0])
        if len({each.get(name) for each in fingerprints}) > 1
    ]


def _is_counted_by_batches(case: Case, name: str) -> bool:
    """Two kinds of numbers, where the ranks bring batches of unequal size.

    Keras counts the losses of single outputs by rows in eager mode, and in a graph by batches if these vary.
    `hvd.evaluate` and MetricSumCallback count one number for each batch by rows, one process by batches.
    """
    if not case.uneven or case.distribution:
        return False
    return (case.outputs > 1 and name.endswith("_loss")) or name.endswith("one_number")


def _tolerance(case: Case, name: str) -> float:
    exact = FLOAT64 if case.floats == "float64" else FLOAT32
    return max(exact, COUNTED) if name.startswith(("history ", "evaluate ")) else exact


def _shown(array: np.ndarray) -> str:
    return np.array2string(array.ravel()[:3], precision=6, threshold=3)
