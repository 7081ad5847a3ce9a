"""Prints how far TensorFlow checkpoints are from the first of them, as JSON: `python compare_checkpoints.py A B...`.

The distance is the largest over all variables of floats, an optimizer's among them, of max |a - b| / max |a|. A loss
scale is none of them: a half of a batch may be too large for it where the whole is not.
"""

from __future__ import annotations

import json
import sys

import numpy as np
import tensorflow as tf


def values(prefix: str) -> dict[str, np.ndarray]:
    reader = tf.train.load_checkpoint(prefix)
    read = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
    return {name: value for name, value in read.items() if value.dtype.kind == "f" and "loss_scale" not in name}


def distance(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> float:
    if one.keys() != other.keys():
        return float("inf")
    return max(float(np.max(np.abs(one[n] - other[n])) / max(np.max(np.abs(one[n])), 1e-300)) for n in one)


first, *others = map(values, sys.argv[1:])
print("DISTANCES" + json.dumps([distance(first, other) for other in others]))
