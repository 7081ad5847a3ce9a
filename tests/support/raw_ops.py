"""Attributes of the native ops, for tests that call them without the functions for users."""

from __future__ import annotations

import struct

from smddp_tf.collectives.reduce_op import ReduceSpec


def bits(value: float) -> int:
    """A float64 as the ops have it: in an attribute of type int."""
    return int.from_bytes(struct.pack("<d", value), "little", signed=True)


def reduction(spec: ReduceSpec) -> dict[str, int | str]:
    """The attributes of the ops that reduce."""
    return {
        "reduce_op": int(spec.op),
        "prescale_bits": bits(spec.prescale),
        "postscale_bits": bits(spec.postscale),
        "wire_dtype": spec.wire_dtype,
    }
