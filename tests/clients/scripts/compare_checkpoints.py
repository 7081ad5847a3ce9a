"""Prints how far TensorFlow checkpoints are from the first of them: `python compare_checkpoints.py (all|model) A B...`.

The distance is the largest over variables of floats of max |a - b| / max |a|. `all` includes Adam's means, `model` does
not. A loss scale is never included: a half of a batch may be too large for it where the whole is not.
"""

from __future__ import annotations

import json
import sys

import numpy as np
import tensorflow as tf


def values(prefix: str) -> dict[str, np.ndarray]:
    reader = tf.train.load_checkpoint(prefix)
    left_out = ("loss_scale", "/Adam") if WHICH == "model" else ("loss_scale",)
    read = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
    return {
        name: value
        for name, value in read.items()
        if value.dtype.kind == "f" and not any(each in name for each in left_out)
    }


def distance(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> float:
    if one.keys() != other.keys():
        return float("inf")
    return max(float(np.max(np.abs(one[n] - other[n])) / max(np.max(np.abs(one[n])), 1e-300)) for n in one)


WHICH, *PREFIXES = sys.argv[1:]
first, *others = map(values, PREFIXES)
print("DISTANCES" + json.dumps([distance(first, other) for other in others]))
