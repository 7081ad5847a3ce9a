"""`Compression.auto`: what the link between nodes needs."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pytest
import tensorflow as tf

pytestmark = pytest.mark.ranks("2", "2+1")

SHAPE = (64, 512)
NAMES = ("none", "bf16", "int8")


def values(rank: int) -> np.ndarray:
    return np.random.default_rng(rank).standard_normal(SHAPE).astype(np.float32)


@pytest.fixture(scope="module", params=[None, 200, 10_000, 100_000])
def rate(hvd, mpi, request) -> Iterator[int | None]:
    """What SMDDP_RAIL_BANDWIDTH_MBPS says of a rail, in a session of its own; None: it is measured."""
    if request.param is None:
        yield None
        return
    if hvd.local_size() == mpi.size:
        pytest.skip("one node has no rails")
    hvd.shutdown()
    os.environ["SMDDP_RAIL_BANDWIDTH_MBPS"] = str(request.param)
    hvd.init()
    yield request.param
    hvd.shutdown()
    del os.environ["SMDDP_RAIL_BANDWIDTH_MBPS"]
    hvd.init()


@pytest.fixture(scope="module")
def possible(hvd, mpi, rate) -> tuple[str, ...]:
    """What may be chosen for the rate of a rail; any where it is measured."""
    if hvd.local_size() == mpi.size:
        return ("none",)
    if rate is None:
        return NAMES
    of_node = rate * min(mpi.allgather(hvd.local_size()))
    return ("int8" if of_node < 3_000 else "bf16" if of_node < 25_000 else "none",)


@pytest.fixture(scope="module")
def right(hvd, possible) -> set[bytes]:
    x = tf.constant(values(hvd.rank()))
    return {hvd.allreduce(x, compression=name, name=f"auto.{name}").numpy().tobytes() for name in possible}


def test_requests_by_name(hvd, rank, right, mpi):
    result = hvd.allreduce(tf.constant(values(rank)), compression="auto", name="auto").numpy().tobytes()
    assert result in right
    assert len(set(mpi.allgather(result))) == 1


def test_gradients_of_a_tape(hvd, rank, right, mpi):
    weights = tf.Variable(tf.ones(SHAPE))

    @tf.function
    def step():
        with hvd.DistributedGradientTape(tf.GradientTape(), compression=hvd.Compression.auto) as tape:
            loss = tf.reduce_sum(weights * values(rank))
        return tape.gradient(loss, weights)

    result = step().numpy().tobytes()
    assert result in right
    assert len(set(mpi.allgather(result))) == 1


def test_small_and_other_tensors_stay_what_they_are(hvd, rank, size, rate):
    small = hvd.allreduce(tf.constant([1.0, 2.0]) * (rank + 1), op=hvd.Sum, compression="auto", name="auto.small")
    np.testing.assert_array_equal(small, np.array([1.0, 2.0]) * size * (size + 1) / 2)
    whole = hvd.allreduce(tf.range(5) + rank, op=hvd.Sum, compression="auto", name="auto.whole")
    np.testing.assert_array_equal(whole, size * np.arange(5) + size * (size - 1) // 2)
