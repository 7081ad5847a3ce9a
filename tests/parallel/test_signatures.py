"""Every collective takes Horovod's arguments, in Horovod's positions, with its defaults.

The table was written from Horovod 0.28.1's documented interface, not from our code.
"""

from __future__ import annotations

import inspect

import pytest

EMPTY = inspect.Parameter.empty
GLOBAL = "global_process_set"  # stands for the object
NONE = "Compression.none"
AVERAGE = 0

_REDUCE = [
    ("average", None),
    ("device_dense", ""),
    ("device_sparse", ""),
    ("compression", NONE),
    ("op", None),
    ("prescale_factor", 1.0),
    ("postscale_factor", 1.0),
]
_NAMED = [("name", None), ("ignore_name_scope", False), ("process_set", GLOBAL)]
SIGNATURES = {
    "allreduce": [("tensor", EMPTY), *_REDUCE, ("name", None), ("process_set", GLOBAL), ("ignore_name_scope", False)],
    "grouped_allreduce": [
        ("tensors", EMPTY),
        *_REDUCE,
        ("process_set", GLOBAL),
        ("ignore_name_scope", False),
        ("name", None),
    ],
    "allgather": [("tensor", EMPTY), *_NAMED],
    "grouped_allgather": [("tensors", EMPTY), *_NAMED],
    "broadcast": [("tensor", EMPTY), ("root_rank", EMPTY), *_NAMED],
    "alltoall": [("tensor", EMPTY), ("splits", None), *_NAMED],
    "reducescatter": [
        ("tensor", EMPTY),
        ("device_dense", ""),
        ("compression", NONE),
        ("op", AVERAGE),
        ("name", None),
        ("process_set", GLOBAL),
        ("ignore_name_scope", False),
        ("prescale_factor", 1.0),
        ("postscale_factor", 1.0),
    ],
    "grouped_reducescatter": [
        ("tensors", EMPTY),
        ("device_dense", ""),
        ("compression", NONE),
        ("op", AVERAGE),
        ("process_set", GLOBAL),
        ("prescale_factor", 1.0),
        ("postscale_factor", 1.0),
    ],
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_signature(hvd, name):
    parameters = inspect.signature(getattr(hvd, name)).parameters.values()
    objects = {GLOBAL: hvd.global_process_set, NONE: hvd.Compression.none}
    expected = [(argument, objects.get(default, default)) for argument, default in SIGNATURES[name]]
    assert [(parameter.name, parameter.default) for parameter in parameters] == expected
    assert all(parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD for parameter in parameters)


def test_numbers_of_the_reductions(hvd):
    """Scripts print and compare them."""
    numbers = [hvd.Average, hvd.Sum, hvd.Adasum, hvd.Min, hvd.Max, hvd.Product]
    assert [int(number) for number in numbers] == [0, 1, 2, 3, 4, 5]
