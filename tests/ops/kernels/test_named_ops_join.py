"""hvd.join: ranks with another number of batches. The oracle is NumPy, with zeros for those who have none left."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.reasons import BEFORE_INIT, raises

pytestmark = pytest.mark.ranks("1", "2", "2+2", "2+1")

RATE = 0.5


def batches_of(rank: int, size: int) -> int:
    """None on rank 0, which so never traces the step, and more on every later one."""
    return 2 * rank if size > 1 else 2


def gradient(rank: int, batch: int, place: int) -> float:
    return float((rank + 1) * (batch + 2) + place)


def expected_weights(size: int, rounds: int = 1) -> list[float]:
    """Plain SGD from 1.0 on; the mean is over all ranks, also those without a batch."""
    weights = [1.0, 1.0]
    for _ in range(rounds):
        for batch in range(batches_of(size - 1, size)):
            active = [rank for rank in range(size) if batches_of(rank, size) > batch]
            weights = [w - RATE * sum(gradient(r, batch, i) for r in active) / size for i, w in enumerate(weights)]
    return weights


def make_step(hvd, rank, variables):
    """One update with a tape, whose gradients are `gradient`."""

    def step(batch):
        with tf.GradientTape() as tape:
            factor = (rank + 1.0) * (tf.cast(batch, tf.float32) + 2.0)
            loss = tf.add_n([tf.reduce_sum(v * (factor + i)) for i, v in enumerate(variables)])
        grads = hvd.DistributedGradientTape(tape).gradient(loss, variables)
        for variable, grad in zip(variables, grads):
            variable.assign_sub(RATE * grad)

    return step


def make_variables():
    return [tf.Variable(tf.ones([3])), tf.Variable(tf.ones([40, 50]))]


def check_weights(hvd, variables, last, expected):
    """The last rank has seen all updates; from it the others get theirs."""
    hvd.broadcast_variables(variables, root_rank=int(last))
    for variable, weight in zip(variables, expected):
        np.testing.assert_allclose(variable, np.full(variable.shape, weight), rtol=1e-5)


@pytest.mark.parametrize("mode", ["eager", "graph", "compiled"])
def test_uneven_loop_with_a_tape(hvd, rank, size, mode):
    variables = make_variables()
    step = make_step(hvd, rank, variables)
    if mode != "eager":
        step = tf.function(step, jit_compile=mode == "compiled")
    for rounds in (1, 2):
        for batch in range(batches_of(rank, size)):
            step(tf.constant(batch))
        last = hvd.join()
        assert last.dtype == tf.int32
        assert last.shape == ()
        assert last == size - 1  # nobody else can: its last batch needs all others to have joined
        check_weights(hvd, variables, last, expected_weights(size, rounds))


def test_join_inside_a_function(hvd, rank, size):
    """After what was traced before it, before what is traced after it, whatever the order in which ops become ready."""
    variables = make_variables()
    step = make_step(hvd, rank, variables)

    @tf.function
    def all_of_it(batches):
        for batch in tf.range(batches):
            step(batch)
        early = hvd.allreduce(tf.ones([3000]), op=hvd.Sum)
        last = hvd.join()
        late = hvd.allreduce(tf.ones([3000]), op=hvd.Sum)
        return early, last, late

    early, last, late = all_of_it(tf.constant(batches_of(rank, size)))
    assert last in range(size)
    np.testing.assert_array_equal(late, np.full(3000, size))
    assert early.shape == (3000,)
    check_weights(hvd, variables, size - 1, expected_weights(size))


def test_uneven_allreduces_of_every_dtype(hvd, rank, size):
    """Small ones travel in the control messages, large ones as tasks; grouped ones bring several dtypes."""
    dtypes = [tf.float32, tf.float64, tf.float16, tf.bfloat16, tf.int32, tf.int64, tf.uint8, tf.int8]
    for batch in range(batches_of(rank, size)):
        active = [other for other in range(size) if batches_of(other, size) > batch]
        for length in (3, 3000):
            total = sum(other + 1 for other in active)
            tensors = [tf.cast(tf.fill([length], size * (rank + 1)), dtype) for dtype in dtypes]
            for tensor, result in zip(tensors, hvd.grouped_allreduce(tensors, op=hvd.Average, name="group")):
                assert result.dtype == tensor.dtype
                np.testing.assert_array_equal(tf.cast(result, tf.float64), np.full(length, total))
            for dtype in dtypes[:5:4]:
                result = hvd.allreduce(tf.cast(tf.fill([length], rank + 1), dtype), op=hvd.Sum, prescale_factor=2.0)
                np.testing.assert_array_equal(result, np.full(length, 2 * total))
            narrow = hvd.allreduce(tf.fill([length], rank + 1.0), op=hvd.Sum, compression=hvd.Compression.fp16)
            np.testing.assert_array_equal(narrow, np.full(length, total))
            if active == [rank]:  # alone with zeros, which have no direction of their own
                mine = tf.range(1.0, length + 1.0)
                np.testing.assert_allclose(hvd.allreduce(mine, op=hvd.Adasum, name="adasum"), mine, rtol=1e-6)
    assert hvd.join() == size - 1
    assert hvd.allreduce(tf.constant(rank), op=hvd.Sum) == size * (size - 1) // 2


def test_what_cannot_be_joined_is_an_error_and_does_not_hang(hvd, rank, size):
    if size == 1:
        pytest.skip("nobody is left to ask")
    slices = tf.IndexedSlices(tf.ones([2, 3]), tf.constant([0, 4]), tf.constant([9, 3]))
    requests = [
        lambda: hvd.allgather(tf.ones([2])),
        lambda: hvd.alltoall(tf.ones([2 * size])),
        lambda: hvd.reducescatter(tf.ones([2])),
        lambda: hvd.broadcast(tf.ones([2]), 1),
        lambda: hvd.barrier(),
        lambda: hvd.allreduce(tf.ones([2]), op=hvd.Max),
        lambda: hvd.allreduce(tf.ones([2]), op=hvd.Min),
        lambda: hvd.allreduce(tf.ones([2]), op=hvd.Product),
        lambda: hvd.allreduce(slices, op=hvd.Sum),
    ]
    if rank != 0:
        for request in requests:
            with raises(tf.errors.FailedPreconditionError, "disagreement", match="Join.*rank 0"):
                request()
    hvd.join()
    for request in requests:
        request()


def test_compiled_join_is_refused(hvd):
    with pytest.raises(NotImplementedError, match="hvd.join"):
        tf.function(lambda: hvd.join(), jit_compile=True)()


def test_in_a_process_set(hvd, rank, size):
    """The set has rounds of its own; ranks are known by their number among all."""
    if size < 3:
        pytest.skip("needs a set of two ranks that is not everybody")
    members = hvd.ProcessSet(list(range(1, size)))
    hvd.shutdown()
    hvd.init(process_sets=[members])
    try:
        if rank == size - 1:
            alone = hvd.allreduce(tf.constant([2.0]), op=hvd.Sum, process_set=members)
            np.testing.assert_array_equal(alone, [2.0])
            with raises(tf.errors.FailedPreconditionError, "disagreement", match="Join.*rank 1"):
                hvd.allgather(tf.ones([2]), process_set=members)
        if rank > 0:
            assert hvd.join(process_set=members) == size - 1
        assert hvd.allreduce(tf.constant(1.0), op=hvd.Sum) == size
    finally:
        hvd.shutdown()
        hvd.init()


def test_before_init(hvd):
    hvd.shutdown()
    try:
        with pytest.raises(ValueError, match=BEFORE_INIT):
            hvd.join()
    finally:
        hvd.init()


def test_after_fit_it_does_no_harm(hvd, rank, size):
    """`fit` has its own way with uneven data; both may be used in one program."""
    import keras

    import smddp_tf.keras as hvd_keras

    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input([2]), keras.layers.Dense(1)])
    model.compile(hvd_keras.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
    rows = np.ones([2 * (rank + 1), 2], np.float32)
    model.fit(rows, rows[:, :1], batch_size=2, verbose=0)
    assert hvd.join() in range(size)
    total = hvd.allreduce(model.trainable_weights[0].value, op=hvd.Average)
    np.testing.assert_allclose(total, model.trainable_weights[0].numpy(), rtol=1e-5)
