"""broadcast_variables, broadcast_object, allgather_object."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import tensorflow as tf

from smddp_tf.exceptions import reason_of
from tests.reasons import raises
from tests.support import process_sets

pytestmark = pytest.mark.ranks("1", "2")

DTYPES = ("float32", "float64", "float16", "bfloat16", "int32", "int64", "uint8", "uint32", "bool", "complex64")


def make_variables(rank: int) -> list[tf.Variable]:
    variables = [tf.Variable(tf.cast([rank + 1, 0, rank], dtype)) for dtype in DTYPES]
    return [*variables, tf.Variable(float(rank)), tf.Variable(tf.fill([0, 3], 1.0)), tf.Variable([[float(rank)] * 100])]


@pytest.mark.parametrize("mode", ["eager", "graph"])
def test_broadcast_variables(hvd, rank, size, mode):
    variables = make_variables(rank)
    broadcast = tf.function(hvd.broadcast_variables) if mode == "graph" else hvd.broadcast_variables
    root = size - 1
    broadcast(variables, root_rank=root)
    for variable, expected in zip(variables, make_variables(root)):
        np.testing.assert_array_equal(variable, expected)


def test_broadcast_variables_inside_the_first_step(hvd, rank):
    """What nearly every script with a tape does."""
    variable = tf.Variable(float(rank))

    @tf.function
    def step(first):
        variable.assign_add(1.0)
        if first:
            hvd.broadcast_variables([variable], root_rank=0)
        variable.assign_add(1.0)

    step(tf.constant(True))
    step(tf.constant(False))
    assert variable.numpy() == 4.0


def test_the_root_keeps_its_own_memory(hvd, rank):
    """Later updates must not reach through to the broadcast result, nor the other way round."""
    variable = tf.Variable(tf.fill([1000], float(rank)))
    hvd.broadcast_variables([variable], root_rank=0)
    before = tf.identity(variable)
    variable.assign_add(tf.ones([1000]))
    np.testing.assert_array_equal(before, np.zeros(1000))
    np.testing.assert_array_equal(variable, np.ones(1000))


def test_broadcast_keras_model_and_optimizer(hvd, rank):
    import keras

    keras.utils.set_random_seed(rank)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4), keras.layers.BatchNormalization()])
    optimizer = keras.optimizers.Adam(0.1 * (rank + 1))
    optimizer.build(model.trainable_variables)
    hvd.broadcast_variables(model.variables, root_rank=0)
    hvd.broadcast_variables(optimizer.variables, root_rank=0)
    everybodys = hvd.allgather_object([np.asarray(v) for v in [*model.variables, *optimizer.variables]])
    for others in everybodys:
        for mine, other in zip(everybodys[0], others):
            np.testing.assert_array_equal(mine, other)
    assert float(optimizer.learning_rate.numpy()) == pytest.approx(0.1)


@pytest.mark.parametrize("mode", ["eager", "graph"])
def test_variables_of_strings_are_sent_too(hvd, rank, size, mode):
    number = tf.Variable(float(rank))
    text = tf.Variable([f"rank {rank}", "é" * (rank + 1), ""])
    root = size - 1
    broadcast = hvd.broadcast_variables if mode == "eager" else tf.function(hvd.broadcast_variables)
    broadcast([text, number], root_rank=root)
    assert number.numpy() == root
    assert [each.decode() for each in text.numpy()] == [f"rank {root}", "é" * (root + 1), ""]


def test_variables_that_cannot_travel_are_left_alone(hvd, rank):
    class Table:
        name, dtype, assign = "list:0", tf.variant, None

    number, table = tf.Variable(float(rank)), Table()
    with pytest.warns(UserWarning, match=r"list:0 \(variant\)"):
        hvd.broadcast_variables([table, number], root_rank=0)
    assert number.numpy() == 0.0


@pytest.mark.parametrize("mode", ["eager", "graph"])
def test_broadcast_in_place(hvd, rank, size, mode):
    import keras

    variables = [tf.Variable([rank, 1]), keras.Variable([[rank + 0.5]]), tf.Variable(f"rank {rank}")]
    root = size - 1
    broadcast = lambda: hvd.broadcast_(variables, root, name="in_place")  # noqa: E731
    values = tf.function(broadcast)() if mode == "graph" else broadcast()
    for variable, value in zip(variables, values):
        np.testing.assert_array_equal(tf.convert_to_tensor(variable), value)
    np.testing.assert_array_equal(values[0], [root, 1])
    np.testing.assert_array_equal(values[1], [[root + 0.5]])
    assert values[2].numpy().decode() == f"rank {root}"
    variables[0].assign_add([1, 1])
    np.testing.assert_array_equal(values[0], [root, 1])
    with tf.Graph().as_default():
        mixed = [tf.compat.v1.Variable(1.0, use_resource=resource) for resource in (True, False)]
        with pytest.raises(ValueError, match="not both at once"):
            hvd.broadcast_(mixed, 0)
        hvd.broadcast_(mixed[1:], 0)
    with pytest.raises(TypeError, match="must be a list"):
        hvd.broadcast_(variables[0], 0)


def test_broadcast_of_no_variables(hvd):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hvd.broadcast_variables([], root_rank=0)
        hvd.broadcast_variables(iter(()), root_rank=0)


@pytest.mark.parametrize(
    ("last", "shown"),
    [
        ({"kernel": ("float32", [3])}, r"rank 0 has kernel:0 float32 \[2\], rank {} has kernel:0 float32 \[3\]"),
        ({"kernel": ("int32", [2])}, r"rank 0 has kernel:0 float32 \[2\], rank {} has kernel:0 int32 \[2\]"),
        (
            {"kernel": ("float32", [2]), "bias": ("float32", [1])},
            r"rank 0 has no more, rank {} has bias:0 float32 \[1\]",
        ),
        ({}, r"rank 0 has kernel:0 float32 \[2\], rank {} has no more"),
    ],
    ids=["shape", "dtype", "one more", "one less"],
)
def test_variables_that_differ_are_named(hvd, rank, size, last, shown):
    """On every rank, and the session goes on."""
    if size == 1:
        pytest.skip("one rank cannot disagree")
    mine = last if rank == size - 1 else {"kernel": ("float32", [2])}
    variables = [tf.Variable(tf.ones([1]), name="first")]
    variables += [tf.Variable(tf.ones(shape, dtype), name=name) for name, (dtype, shape) in mine.items()]
    with pytest.raises(tf.errors.FailedPreconditionError, match=shown.format(size - 1)) as caught:
        hvd.broadcast_variables(variables, root_rank=0)
    assert reason_of(caught.value) == "tensors_differ"
    assert hvd.allreduce(tf.constant(1.0), op=hvd.Sum).numpy() == size


def test_other_disagreements_of_broadcasts_stay_as_they_are(hvd, rank, size, sets):
    if size == 1:
        pytest.skip("one rank cannot disagree")
    with raises(tf.errors.FailedPreconditionError, "disagreement", match="Mismatched BROADCAST root ranks"):
        hvd.broadcast_variables([tf.Variable(1.0)], root_rank=rank)
    for process_set in process_sets.mine(sets):
        if process_set.size() > 1:
            differing = [tf.Variable(tf.ones([1 + process_set.rank()]))]
            with raises(
                tf.errors.FailedPreconditionError, "tensors_differ", match="Mismatched BROADCAST tensor shapes"
            ):
                hvd.broadcast_variables(differing, process_set.ranks[0], process_set=process_set)


# --- objects ---

OBJECTS = [None, 7, "text", {"a": [1, (2.5, None)]}, b"", b"x" * 100_003, lambda x: x + 1, np.arange(6).reshape(2, 3)]


def same(a, b) -> bool:
    if callable(a):
        return a(41) == b(41)
    return np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b


@pytest.mark.parametrize("obj", OBJECTS, ids=lambda obj: type(obj).__name__)
def test_broadcast_object(hvd, rank, size, obj):
    for root in range(size):
        received = hvd.broadcast_object(obj if rank == root else "something else", root)
        assert same(obj, received)
        assert rank != root or received is obj


def test_the_order_of_arguments_is_that_of_horovod(hvd, rank, size):
    everybody = hvd.global_process_set
    assert hvd.broadcast_object(rank, size - 1, None, "by_place", everybody) == size - 1
    assert hvd.allgather_object(rank, None, "by_place", everybody) == list(range(size))
    broadcast = hvd.broadcast_object_fn(size - 1, None, "fn", everybody)
    assert [broadcast(rank), broadcast({"rank": rank})] == [size - 1, {"rank": size - 1}]
    variable = tf.Variable(float(rank))
    hvd.broadcast_variables([variable], size - 1, everybody, True)
    assert variable.numpy() == size - 1


def test_allgather_object(hvd, rank, size):
    mine = [{"rank": rank}, "x" * rank * 1000, None][: rank % 3 + 1]
    gathered = hvd.allgather_object(mine, name="mine")
    assert gathered == [[{"rank": r}, "x" * r * 1000, None][: r % 3 + 1] for r in range(size)]


class Unpicklable:
    def __reduce__(self):
        raise TypeError("this object stays at home")


def test_an_object_that_cannot_be_pickled_is_an_error_on_every_rank(hvd, rank, size):
    odd = size - 1
    with pytest.raises(RuntimeError, match=f"Rank {odd} could not pickle its object: TypeError: this object stays"):
        hvd.allgather_object(Unpicklable() if rank == odd else 1)
    with pytest.raises(RuntimeError, match=f"Rank {odd} could not pickle"):
        hvd.broadcast_object(Unpicklable() if rank == odd else 1, root_rank=odd)
    assert hvd.allgather_object(rank) == list(range(size))


def test_an_unknown_root(hvd, size):
    with pytest.raises(ValueError, match="root"):
        hvd.broadcast_object(1, root_rank=size)
    assert hvd.broadcast_object(1) == 1
