"""Factors of allreduce on integers and on floats of 16 bits."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

pytestmark = pytest.mark.ranks("2", "2+2", "2+1")


def test_integers_are_scaled_in_floating_point_and_cut(hvd, rank, size):
    for dtype in ("uint8", "int8", "uint16", "int16", "int32", "int64"):
        values = np.array([7, 5, 9]) * (-1 if dtype.startswith("int") else 1)
        result = hvd.allreduce(tf.cast(values, dtype), op=hvd.Sum, prescale_factor=0.5, postscale_factor=1.5)
        np.testing.assert_array_equal(result, np.trunc(size * np.trunc(values * 0.5) * 1.5))


def test_halves_are_scaled(hvd, rank, size):
    for dtype in ("float16", "bfloat16"):
        result = hvd.allreduce(tf.ones([3], dtype), op=hvd.Sum, prescale_factor=0.25, postscale_factor=8.0)
        np.testing.assert_array_equal(tf.cast(result, tf.float32), np.full(3, 2.0 * size))
