"""SmddpReduceGradient, SmddpReducePart and SmddpGatherPart: tensors of a plan, in a graph."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from smddp_tf._native import loader
from smddp_tf.collectives import graph
from smddp_tf.collectives.emit import _attributes_of as reduction
from smddp_tf.collectives.reduce_op import Average, ReduceSpec, Sum

pytestmark = pytest.mark.ranks("2", "2+2")

SHAPES = [[300], [2, 5], [], [40, 50]]


def register(key: str, spec: ReduceSpec, shapes=SHAPES, **more) -> int:
    return loader.core().register_plan(key, ["float32"] * len(shapes), shapes, **spec._asdict(), **more)


def values(rank: int, index: int, step: int = 0) -> np.ndarray:
    shape = SHAPES[index]
    return ((np.arange(np.prod(shape, dtype=int)) * 7 + 13 * rank + index + step) % 251).reshape(shape).astype("f4")


def gradient_ops(key: str, plan: int, spec: ReduceSpec, order):
    """A graph with an op for each tensor, which become ready in that order."""

    @tf.function
    def step(*gradients):
        results = {}
        for index in order:
            result = loader.op_library().smddp_reduce_gradient(
                gradient=gradients[index], tensor_name=f"{key}.{index}", plan=plan, index=index, **reduction(spec)
            )
            (results[index],) = graph.run_independently([result])
        return [results[index] for index in range(len(gradients))]

    return step


@pytest.mark.parametrize("op", [Sum, Average])
def test_gradients_of_several_steps(hvd, rank, size, op):
    spec = ReduceSpec(op)
    key = f"steps.{op.name}"
    order = range(len(SHAPES)) if rank % 2 else reversed(range(len(SHAPES)))
    step = gradient_ops(key, register(key, spec), spec, order)
    for number in range(4):
        results = step(*(tf.constant(values(rank, index, number)) for index in range(len(SHAPES))))
        for index, result in enumerate(results):
            total = sum(values(other, index, number) for other in range(size))
            np.testing.assert_allclose(result, total / (size if op == Average else 1), rtol=1e-6)
            assert result.shape == SHAPES[index]


def test_a_plan_of_another_process_is_refused(restartable):
    """It ends the session: what the ranks reduce together is not known."""
    with pytest.raises(
        tf.errors.FailedPreconditionError, match="Gradient 0 belongs to a plan that this process does not"
    ):
        gradient_ops("unknown", 987_654, ReduceSpec(Sum), [0])(tf.zeros(300))


def part_of(rank: int, parts: int) -> int:
    return loader.core().places_in_parts(0, parts)[rank]


def test_parts_of_sums_and_back(hvd, rank, size):
    """300 elements in parts of a multiple of 16, the last one filled up with zeros."""
    spec, length = ReduceSpec(Sum), -(-300 // (16 * size)) * 16
    place = part_of(rank, size)
    reduce = register("reduce", spec, [[300]], kind="reduce_parts", parts=size)
    gather = register("gather", spec, [[300]], kind="gather_parts", parts=size)

    @tf.function
    def both(gradient):
        where = {"parts": size, "place": place, "index": 0, **reduction(spec)}
        ops = loader.op_library()
        part = ops.smddp_reduce_part(gradient=gradient, plan=reduce, tensor_name="reduce.0", shape=[length], **where)
        whole = ops.smddp_gather_part(gradient=part * 2, plan=gather, tensor_name="gather.0", shape=[300], **where)
        return part, whole

    for number in range(2):
        part, whole = both(tf.constant(values(rank, 0, number)))
        total = sum(values(other, 0, number) for other in range(size))
        padded = np.concatenate([total, np.zeros(length * size - 300, "f4")])
        np.testing.assert_array_equal(part, padded[place * length : (place + 1) * length])
        np.testing.assert_array_equal(whole, 2 * total)


@pytest.mark.parametrize(
    ("place", "length", "words"), [(1, 0, "was traced for part"), (0, 16, "Expected a part of .* Received: ")]
)
def test_a_part_that_is_not_this_ranks(hvd, rank, size, place, length, words):
    """Another rank's place, and a part that is too long."""
    spec, right = ReduceSpec(Sum), -(-300 // (16 * size)) * 16
    plan = register(f"wrong.{place}", spec, [[300]], kind="reduce_parts", parts=size)
    attributes = {"plan": plan, "index": 0, "parts": size, "tensor_name": "wrong", **reduction(spec)}
    attributes["place"] = (part_of(rank, size) + place) % size
    wrong = tf.function(
        lambda x: loader.op_library().smddp_reduce_part(gradient=x, shape=[right + length], **attributes)
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match=words):
        wrong(tf.zeros(300))
