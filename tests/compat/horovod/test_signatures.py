"""Every collective takes Horovod's arguments, in Horovod's positions, with its defaults.

The table was written from Horovod 0.28.1's documented interface, not from our code.
"""

from __future__ import annotations

import importlib
import inspect

import pytest
import tensorflow as tf

pytestmark = pytest.mark.ranks("2")

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


@pytest.mark.parametrize(
    "name",
    [
        *SIGNATURES,
        *("allgather_object", "barrier", "broadcast_", "broadcast_object", "broadcast_variables", "join"),
        *("sdp.allreduce", "sdp.oob_allreduce", "DistributedGradientTape.gradient"),
    ],
)
def test_defaults_are_those_of_the_function(hvd, name):
    """Programs look at them, and change them: distributed-embeddings does so with `hvd.broadcast.__defaults__`."""
    function = hvd
    for part in name.split("."):
        function = importlib.import_module("smddp_tf.sdp") if part == "sdp" else getattr(function, part)
    parameters = inspect.signature(function).parameters.values()
    by_name = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
    by_place = [p.default for p in parameters if p.default is not EMPTY and p.name not in by_name]
    assert list(function.__defaults__ or ()) == by_place
    assert (function.__kwdefaults__ or {}) == by_name


def test_defaults_can_be_changed(hvd, monkeypatch):
    changed = list(hvd.broadcast.__defaults__)
    changed[1] = True
    monkeypatch.setattr(hvd.broadcast, "__defaults__", tuple(changed))
    assert float(hvd.broadcast(tf.constant(2.0), 0)) == 2.0
    assert float(tf.function(hvd.broadcast)(tf.constant(2.0), 0)) == 2.0
