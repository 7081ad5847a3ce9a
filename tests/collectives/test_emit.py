"""How a reduction is written into an op and read back, and what can be part of a plan."""

from __future__ import annotations

import math

import pytest
import tensorflow as tf

from smddp_tf.collectives import emit


@pytest.mark.parametrize("value", [1.0, -0.1, 1 / 3, 1e300, 5e-324, -0.0, math.inf])
def test_factors_keep_every_bit(value: float) -> None:
    bits = emit._float64_bits(value)
    assert type(bits) is int
    assert -(2**63) <= bits < 2**63  # an attribute of 64 bits with a sign
    back = emit._float64_from_bits(bits)
    assert (back, math.copysign(1, back)) == (value, math.copysign(1, value))


def test_what_can_be_part_of_a_plan() -> None:
    assert all(emit.is_plannable(tf.zeros([2, 3], dtype)) for dtype in ("float16", "bfloat16", "float32", "float64"))
    assert not emit.is_plannable(tf.zeros([2, 3], tf.int32))
    found = []

    @tf.function(input_signature=[tf.TensorSpec([None, 3])])
    def step(x: tf.Tensor) -> tf.Tensor:
        found.append(emit.is_plannable(x))
        return x

    step(tf.zeros([2, 3]))
    assert found == [False]  # its shape is not known when it is traced


@pytest.mark.parametrize(
    ("elements", "parts", "length"), [(48, 3, 16), (49, 3, 32), (100, 3, 48), (2, 3, 16), (0, 3, 0)]
)
def test_parts_hold_all_elements(elements: int, parts: int, length: int) -> None:
    """Their length is a multiple of 16."""
    assert emit.part_length(elements, parts) == length
