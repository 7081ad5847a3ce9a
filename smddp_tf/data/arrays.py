"""Structures of arrays with the same first dimension, such as (x, y) or {"images": x, "sizes": s}."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np


def is_array_structure(data: object) -> bool:
    """True for an array, and for tuples, lists and dicts of such; None may stand for an absent array."""
    leaves = [leaf for leaf in _leaves(data) if leaf is not None]
    has_rows = (hasattr(leaf, "__getitem__") and len(getattr(leaf, "shape", None) or ()) > 0 for leaf in leaves)
    return bool(leaves) and all(has_rows)


def first_dimension(data: object) -> int:
    """The number of rows of all arrays; a ValueError where they differ."""
    lengths = [int(leaf.shape[0]) for leaf in _leaves(data) if leaf is not None]
    if len(set(lengths)) != 1:
        raise ValueError(f"All arrays must have the same first dimension, the number of samples. Received: {lengths}.")
    return lengths[0]


def rows(data: object, indices: np.ndarray) -> Any:
    """Returns the structure with the rows `indices` of every array, in that order."""
    return _mapped(lambda array: _rows_of(array, indices), data)


def _rows_of(array: Any, indices: np.ndarray) -> Any:
    if array is None:
        return None
    if hasattr(array, "iloc"):  # a table or column of pandas
        return array.iloc[indices]
    if isinstance(array, np.ndarray) or not hasattr(array, "numpy"):
        return array[indices]
    if array.dtype.name == "string" or hasattr(array, "row_lengths"):  # of which Keras takes no NumPy array
        import tensorflow as tf

        return tf.gather(array, indices)
    return array.numpy()[indices]  # a tensor


def _leaves(data: object) -> list[Any]:
    leaves: list[Any] = []
    _mapped(leaves.append, data)
    return leaves


def _mapped(function: Callable[[Any], Any], data: Any) -> Any:
    if isinstance(data, Mapping):
        return {key: _mapped(function, part) for key, part in data.items()}
    if isinstance(data, (tuple, list)):
        parts = [_mapped(function, part) for part in data]
        return type(data)(*parts) if hasattr(data, "_fields") else type(data)(parts)
    return function(data)
