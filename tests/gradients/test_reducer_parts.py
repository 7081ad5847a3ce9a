"""Plans that reduce to parts and gather them again: bit by bit what an allreduce gives."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from smddp_tf.collectives.reduce_op import ReduceSpec
from tests.native_module import core
from tests.reasons import raises
from tests.support.parts import brought, cut, degrees, gathered, gatherer, reduced, reducer

pytestmark = pytest.mark.ranks("2", "2+2")

BITS = {2: np.uint16, 4: np.uint32, 8: np.uint64}


def assert_same_bits(actual, expected) -> None:
    actual, expected = (np.asarray(each.numpy() if tf.is_tensor(each) else each) for each in (actual, expected))
    bits = BITS[expected.dtype.itemsize]
    np.testing.assert_array_equal(actual.view(bits), expected.view(bits))


def test_places(hvd, rank):
    for parts in degrees(hvd):
        node = rank // hvd.local_size()
        assert core().places_in_parts(0, parts)[hvd.rank()] == (node * hvd.local_size() + hvd.local_rank()) % parts


@pytest.mark.parametrize("parts", [0, -1, 3, 1000])
def test_impossible_parts(hvd, size, parts):
    with pytest.raises(ValueError, match=rf"must divide the {size} ranks, .* Received: {parts} parts"):
        core().places_in_parts(0, parts)[hvd.rank()]


@pytest.mark.parametrize("wire", ["", "bfloat16", "float16"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_parts_of_an_allreduce(hvd, rank, size, dtype, wire):
    reduction = ReduceSpec(hvd.Average, 0.5, 3.0, wire)

    for parts in degrees(hvd):
        key = f"parts.{dtype}.{wire}.{parts}"
        function = reducer(parts, key, reduction)
        for step in range(3):
            tensors = brought(rank, dtype=dtype, step=step)
            compression = {"": hvd.Compression.none, "bfloat16": hvd.Compression.bf16, "float16": hvd.Compression.fp16}
            how = {"prescale_factor": 0.5, "postscale_factor": 3.0, "compression": compression[wire]}
            whole = hvd.grouped_allreduce(tensors, **how)
            mine = function(*tensors)
            for part, full in zip(mine, whole):
                assert_same_bits(part, cut(full.numpy(), parts, core().places_in_parts(0, parts)[hvd.rank()]))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_gathered_weights(hvd, rank, size, dtype):
    weights = brought(7, dtype=dtype)  # the same on all ranks
    odd = np.array([-0.0, np.inf, -np.inf, np.nan, 1e-40, 0.0, 5.0], weights[0].dtype.as_numpy_dtype)
    bits = odd.view(BITS[odd.dtype.itemsize])
    bits[3] ^= bits.dtype.type(5)  # a NaN with a payload
    weights.append(tf.constant(odd))
    for parts in degrees(hvd):
        key = f"gather.{dtype}.{parts}"
        place = core().places_in_parts(0, parts)[hvd.rank()]
        pieces = [tf.constant(cut(w.numpy(), parts, place)) for w in weights]
        function = gatherer(weights, parts, key)
        for _ in range(2):
            for whole, weight in zip(function(*pieces), weights):
                assert whole.shape == weight.shape
                assert_same_bits(whole, weight)


def both(parts):
    """As a training step does: gradients to parts, an update of the part, the parts to whole weights."""

    @tf.function
    def step(*tensors):
        sums = reduced(tensors, parts, f"both.{parts}.reduce")
        return gathered([2 * part for part in sums], tensors, parts, f"both.{parts}.gather")

    return step


def test_both_in_one_function(hvd, rank, size):
    for parts in degrees(hvd):
        step = both(parts)
        for number in range(3):
            tensors = brought(rank, step=number)
            for whole, mean in zip(step(*tensors), hvd.grouped_allreduce(tensors)):
                assert_same_bits(whole, 2 * mean)


def test_twice_in_one_graph(hvd, rank, size):
    parts = size

    @tf.function
    def inner(tensor):
        return reduced([tensor], parts, "inner")[0]

    @tf.function
    def outer(tensor):
        return inner(tensor), inner(2 * tensor)

    tensor = brought(rank, [(333,)])[0]
    once, twice = outer(tensor)
    expected = cut(hvd.allreduce(tensor).numpy(), parts, core().places_in_parts(0, parts)[hvd.rank()])
    assert_same_bits(once, expected)
    assert_same_bits(twice, 2 * expected)


def test_ranks_that_differ_in_parts(hvd, rank, size):
    if size == 1:
        pytest.skip("needs several ranks")
    parts = 1 if rank == 0 else size
    tensors = brought(rank)
    with raises(tf.errors.FailedPreconditionError, "disagreement", match="reduces to parts: "):
        reducer(parts, "differ")(*tensors)
    with raises(
        tf.errors.FailedPreconditionError, "disagreement", match="parts: "
    ):  # reduce on one, gather on the others
        if rank == 0:
            tf.function(lambda *t: reduced(t, size, "differ too"))(*tensors)
        else:
            pieces = [tf.constant(cut(t.numpy(), size, 0)) for t in tensors]
            tf.function(lambda *p: gathered(p, tensors, size, "differ too"))(*pieces)


def test_a_part_of_the_wrong_length(hvd, rank, size):
    tensors = brought(rank, [(64,)])
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"Expected a part of \d+ elements. Received: 65"):
        gatherer(tensors, size, "wrong length")(tf.zeros([65]))


def test_join_is_an_error(restartable, mpi, rank, size):
    """The rank that has joined owns parts, which nobody else has."""
    hvd = restartable
    if size == 1:
        pytest.skip("needs several ranks")
    function = reducer(size, "joined")
    function(*brought(rank))
    mpi.Barrier()  # the error of one rank ends the session of all, also of one that still waits for its first step
    tensors = brought(rank)
    with raises(tf.errors.OpError, "bad_state", match=r"Rank 0 .* has called hvd.join"):
        hvd.join() if rank == 0 else function(*tensors)


def sent_while(run) -> int:
    before = core().stats()["rail_bytes_sent"]
    run()
    return core().stats()["rail_bytes_sent"] - before


def test_bytes(hvd, size, rank):
    """Those of docs/algorithms.md, exactly where the data divide; a reducescatter is a reduction to `size` parts."""
    nodes, local = size // hvd.local_size(), hvd.local_size()
    data = 4 * 65536 * size
    tensors = brought(rank, [(size, data // 4 // size)])
    slack = 0 if size & (size - 1) == 0 else data // 50
    reduce_to_all = (nodes - 1) / nodes * data / local
    for parts in degrees(hvd):
        span = max(1, parts // local)
        pieces = reducer(parts, f"bytes.{parts}")(*tensors)
        reduce_bytes = sent_while(lambda: reducer(parts, f"bytes.{parts}")(*tensors))  # noqa: B023
        gather_bytes = sent_while(lambda: gatherer(tensors, parts, f"more bytes.{parts}")(*pieces))  # noqa: B023
        expected = reduce_to_all + (nodes / span - 1) / nodes * data / local
        assert reduce_bytes == pytest.approx(expected, abs=slack)
        assert gather_bytes == pytest.approx((span - 1) / span * data / local, abs=slack)
        assert reduce_bytes + gather_bytes == pytest.approx(2 * reduce_to_all, abs=2 * slack)
    assert sent_while(lambda: hvd.reducescatter(tensors[0])) == pytest.approx(reduce_to_all, abs=slack)


def test_reducescatter_has_the_bits_of_an_allreduce(hvd, size, rank):
    tensor = brought(rank, [(4 * size + 1, 300)])[0]
    rows = [5] + [4] * (size - 1)
    begin = sum(rows[:rank])
    assert_same_bits(hvd.reducescatter(tensor), hvd.allreduce(tensor).numpy()[begin : begin + rows[rank]])


def test_a_graph_of_another_session(restartable, mpi, size):
    """Its ranks have other parts: what the graph was traced for would be mixed up."""
    if size == 1:
        pytest.skip("one rank has one part")
    tensors = brought(restartable.rank())
    reduce = reducer(size, "another session")
    reduce(*tensors)
    restartable.shutdown()
    backwards = mpi.Split(0, -mpi.rank)
    restartable.init(comm=backwards)
    if restartable.rank() == mpi.rank:  # the middle one of three
        with pytest.raises(tf.errors.OpError):
            reduce(*tensors)
    else:
        with pytest.raises(tf.errors.InvalidArgumentError, match="In this session the rank has part"):
            reduce(*tensors)
    restartable.shutdown()
