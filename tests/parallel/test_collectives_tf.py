"""The collectives on TensorFlow tensors, eager and in a `tf.function`."""

from __future__ import annotations

import time

import numpy as np
import pytest
import tensorflow as tf

REDUCIBLE = ("uint8", "int8", "uint16", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64")
MOVABLE = (*REDUCIBLE, "bool", "uint32", "uint64", "complex64", "complex128")
OPS = {"Average": np.mean, "Sum": np.sum, "Min": np.min, "Max": np.max, "Product": np.prod}
SHAPES = ((), (1,), (7,), (3, 5), (0,), (2, 0, 3), (1000,))


@pytest.fixture(params=["eager", "graph"])
def run(request):
    """Calls a function of tensors: directly, or as a `tf.function`."""
    return lambda function, *args: (function if request.param == "eager" else tf.function(function))(*args)


def contribution(rank: int, shape=(3, 5), dtype="float32") -> tf.Tensor:
    """A small integer in every place, different for every rank: sums and products are exact in each dtype."""
    values = (np.arange(np.prod(shape, dtype=int)).reshape(shape) * 3 + rank) % 4 + 1
    return tf.cast(values, dtype)


def everybody(size: int, shape=(3, 5), dtype="float32") -> np.ndarray:
    return np.stack([contribution(rank, shape, dtype).numpy() for rank in range(size)])


# --- allreduce ---


@pytest.mark.parametrize("dtype", REDUCIBLE)
@pytest.mark.parametrize("op", OPS)
def test_allreduce(hvd, rank, size, run, dtype, op):
    tensor = contribution(rank, dtype=dtype)
    result = run(lambda x: hvd.allreduce(x, op=getattr(hvd, op)), tensor)
    exact = OPS[op](everybody(size).astype(np.float64), axis=0)
    if op == "Average" and tensor.dtype.is_integer:
        exact = np.trunc(exact)
    assert result.dtype == tensor.dtype
    assert result.shape == tensor.shape
    tolerance = {"bfloat16": 2**-8, "float16": 2**-11}.get(dtype, 1e-7)
    np.testing.assert_allclose(result.numpy().astype(np.float64), exact, rtol=tolerance)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_allreduce_shapes(hvd, rank, size, run, shape):
    result = run(lambda x: hvd.allreduce(x, op=hvd.Sum), contribution(rank, shape))
    np.testing.assert_array_equal(result, everybody(size, shape).sum(axis=0))


@pytest.mark.parametrize(("op", "expected"), [("Max", np.any), ("Min", np.all), ("Sum", np.any), ("Product", np.all)])
def test_allreduce_bool(hvd, rank, size, run, op, expected):
    table = np.arange(2 * size).reshape(size, 2) % size == [0, 1 % size]
    table = np.concatenate([table, np.ones((size, 1), bool), np.zeros((size, 1), bool)], axis=1)
    result = run(lambda x: hvd.allreduce(x, op=getattr(hvd, op)), tf.constant(table[rank]))
    np.testing.assert_array_equal(result, expected(table, axis=0))


def test_allreduce_default_is_average(hvd, rank, size, run):
    result = run(hvd.allreduce, tf.constant(float(rank)))
    assert float(result) == pytest.approx((size - 1) / 2)


def test_allreduce_scales(hvd, rank, size, run):
    """Factors that float32 cannot hold exactly: they must reach the engine as float64."""
    tensor = contribution(rank, dtype="float64")
    result = run(lambda x: hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.1, postscale_factor=1 / 3), tensor)
    np.testing.assert_allclose(result, everybody(size, dtype="float64").sum(axis=0) * (0.1 / 3), rtol=1e-14)


def test_allreduce_scales_max(hvd, rank, size, run):
    """Reduced after the prescale: with a negative one, the largest becomes the smallest."""
    result = run(lambda x: hvd.allreduce(x, op=hvd.Max, prescale_factor=-1.0), contribution(rank))
    np.testing.assert_array_equal(result, -everybody(size).min(axis=0))


def test_allreduce_accepts_whatever_converts(hvd, rank, size):
    for value in (2.0, [1.0, 2.0], np.ones(3, np.float32), tf.Variable([1.0, 2.0])):
        result = hvd.allreduce(value, op=hvd.Sum)
        np.testing.assert_allclose(result, np.asarray(tf.convert_to_tensor(value)) * size)


def test_allreduce_leaves_its_input_alone(hvd, rank, size, run):
    """The op may work in place, but never where somebody else can see it."""
    array = np.full(4096, rank + 1.0, np.float32)
    tensor, variable = tf.constant(array), tf.Variable(array)
    for value in (array, tensor, variable):
        total = run(lambda v=value: hvd.allreduce(v, op=hvd.Sum))
        assert total[0] == size * (size + 1) / 2
        np.testing.assert_array_equal(np.asarray(tf.convert_to_tensor(value)), np.full(4096, rank + 1.0))


def test_allreduce_in_place_in_a_graph(hvd, rank, size):
    """Here the input has no other reader, so it may be overwritten; the sum must be right all the same."""

    @tf.function
    def function(x):
        return [hvd.allreduce(x * float(k), op=hvd.Sum) for k in range(1, 9)]

    for k, result in enumerate(function(contribution(rank)), start=1):
        np.testing.assert_array_equal(result, everybody(size).sum(axis=0) * k)


@pytest.mark.parametrize("compression", ["none", "fp16", "bf16"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int32"])
def test_allreduce_compression(hvd, rank, size, run, compression, dtype):
    tensor = contribution(rank, dtype=dtype)
    chosen = getattr(hvd.Compression, compression)
    result = run(lambda x: hvd.allreduce(x, op=hvd.Sum, compression=chosen), tensor)
    assert result.dtype == tensor.dtype
    np.testing.assert_array_equal(result.numpy().astype(float), everybody(size).sum(axis=0))


def test_allreduce_compression_narrows(hvd, run):
    """1 + 2**-12 does not fit into float16; without compression it does."""
    value = tf.constant(1 + 2**-12)
    assert run(lambda x: hvd.allreduce(x, compression=hvd.Compression.fp16), value) == 1.0
    assert run(hvd.allreduce, value) == value


@pytest.mark.parametrize("compression", ["fp16", "bf16"])
def test_compression_happens_in_the_engine(hvd, compression):
    """No casts in the graph, and a wire dtype on the op, on every path that has no plan."""
    chosen = getattr(hvd.Compression, compression)

    @tf.function
    def function(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = hvd.allreduce(x, compression=chosen)
            z = hvd.grouped_allreduce([x, x], compression=chosen)
        return tape.gradient([y, *z], x)

    ops = function.get_concrete_function(tf.TensorSpec([4])).graph.get_operations()
    wires = [op.get_attr("wire_dtype") for op in ops if op.type == "SmddpAllreduce"]
    assert wires == [{"fp16": b"float16", "bf16": b"bfloat16"}[compression]] * 4
    assert not any(op.type == "Cast" for op in ops)


def test_compressed_sums_are_taken_in_float32(hvd, rank, size, run):
    """2048 + 1 is 2048 in float16; ones that are added up before the sum is rounded are not lost."""
    value = tf.fill([100], 2048.0 if rank == 0 else 1.0)
    total = run(lambda x: hvd.allreduce(x, op=hvd.Sum, compression=hvd.Compression.fp16), value)
    if hvd.local_size() == size:
        np.testing.assert_array_equal(total, np.full(100, np.float16(2048 + size - 1)))
    assert np.all(np.abs(total - (2048.0 + size - 1)) <= 2.0)


def test_allreduce_own_compressor(hvd, size, run):
    class Negated:
        @staticmethod
        def compress(tensor):
            return -tensor, "a context"

        @staticmethod
        def decompress(tensor, ctx):
            assert ctx == "a context"
            return tensor * 10.0

    result = run(lambda x: hvd.allreduce(x, op=hvd.Sum, compression=Negated), tf.constant(1.0))
    assert result == -10.0 * size


def test_average_is_deprecated(hvd, rank, size):
    with pytest.warns(DeprecationWarning, match=r"op=hvd\.Sum"):
        assert hvd.allreduce(tf.constant(1.0), average=False) == size
    with pytest.warns(DeprecationWarning, match=r"op=hvd\.Average"):
        assert hvd.allreduce(tf.constant(1.0), average=True) == 1.0
    with pytest.raises(ValueError, match="only one of them"):
        hvd.allreduce(tf.constant(1.0), average=True, op=hvd.Sum)


@pytest.mark.parametrize("bad", [6, -1, 7, "sum", True], ids=repr)
def test_unknown_op(hvd, bad):
    with pytest.raises(ValueError, match="`op` must be one of"):
        hvd.allreduce(tf.constant(1.0), op=bad)


def test_dtypes_that_cannot_be_reduced(hvd, run):
    for tensor in (tf.constant("text"), tf.constant(1, tf.uint32), tf.constant(1j)):
        with pytest.raises(TypeError, match=rf"`allreduce` takes .* dtype {tensor.dtype.name}"):
            run(lambda x=tensor: hvd.allreduce(x, op=hvd.Sum))
    with pytest.raises(TypeError, match="bool tensors have no average"):
        run(lambda: hvd.allreduce(tf.constant(True)))


# --- slices and groups ---


def my_slices(rank: int) -> tf.IndexedSlices:
    """`rank` + 1 rows of 2 for a table of 10 rows."""
    values = tf.fill([rank + 1, 2], float(rank + 1))
    return tf.IndexedSlices(values, tf.range(rank + 1, dtype=tf.int64), dense_shape=tf.constant([10, 2], tf.int64))


def all_slices(size: int) -> np.ndarray:
    table = np.zeros((10, 2), np.float32)
    for rank in range(size):
        table[: rank + 1] += rank + 1
    return table


@pytest.mark.parametrize("op", ["Average", "Sum"])
def test_allreduce_slices(hvd, rank, size, run, op):
    result = run(lambda: hvd.allreduce(my_slices(rank), op=getattr(hvd, op)))
    assert isinstance(result, tf.IndexedSlices)
    assert result.values.shape == (size * (size + 1) // 2, 2)
    expected = all_slices(size) / (size if op == "Average" else 1)
    np.testing.assert_allclose(tf.convert_to_tensor(result), expected, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "int64", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize("grouped", [False, True])
def test_average_of_slices_is_that_of_the_table(hvd, rank, size, run, dtype, grouped):
    """Integers are divided once, after the rows of an index are added up: 7 and 7 of two ranks are 7."""
    random = np.random.default_rng(rank)
    values, indices = random.integers(0, 8, (5 + rank, 2)), random.integers(0, 4, 5 + rank)
    values = values if dtype.startswith("u") else values - 5  # rounded toward zero
    slices = tf.IndexedSlices(tf.constant(values, dtype), tf.constant(indices), tf.constant([4, 2], tf.int64))
    reduce = (lambda each: hvd.grouped_allreduce([each])[0]) if grouped else hvd.allreduce
    result = run(lambda: tf.convert_to_tensor(reduce(slices)))
    expected = hvd.allreduce(tf.convert_to_tensor(slices))
    assert result.dtype == tf.as_dtype(dtype)
    tolerance = {"float16": 0.01, "bfloat16": 0.1}.get(dtype, 1e-9)  # here each row is divided
    np.testing.assert_allclose(tf.cast(result, tf.float64), tf.cast(expected, tf.float64), atol=tolerance)


@pytest.mark.parametrize(
    "arguments", [{"op": 4}, {"op": 2}, {"prescale_factor": 2.0}, {"postscale_factor": 0.5}], ids=str
)
def test_what_slices_have_not(hvd, rank, arguments):
    for reduce in (hvd.allreduce, lambda slices, **more: hvd.grouped_allreduce([tf.ones([2]), slices], **more)):
        with pytest.raises(NotImplementedError, match="IndexedSlices"):
            reduce(my_slices(rank), **arguments)


def test_grouped_allreduce(hvd, rank, size, run):
    """Slices between tensors, two of them, of different tables."""
    tensors = [contribution(rank, shape) for shape in SHAPES]
    other = tf.IndexedSlices(tf.ones([2, 1], tf.float64), tf.constant([1, 1]), tf.constant([3, 1]))
    results = run(lambda: hvd.grouped_allreduce([*tensors[:3], my_slices(rank), *tensors[3:], other], op=hvd.Sum))
    np.testing.assert_allclose(tf.convert_to_tensor(results.pop()), [[0.0], [2.0 * size], [0.0]])
    np.testing.assert_allclose(tf.convert_to_tensor(results.pop(3)), all_slices(size))
    for shape, result in zip(SHAPES, results):
        np.testing.assert_array_equal(result, everybody(size, shape).sum(axis=0))


def test_grouped_allreduce_of_several_dtypes(hvd, rank, size, run):
    dtypes = ("float32", "int32", "float16", "float32")
    results = run(lambda: hvd.grouped_allreduce([contribution(rank, dtype=dtype) for dtype in dtypes], op=hvd.Sum))
    for dtype, result in zip(dtypes, results):
        assert result.dtype == dtype
        np.testing.assert_array_equal(result, everybody(size).sum(axis=0).astype(dtype))


def test_grouped_allreduce_of_nothing(hvd):
    assert hvd.grouped_allreduce([]) == []


# --- allgather, broadcast, barrier ---


@pytest.mark.parametrize("dtype", MOVABLE)
def test_allgather(hvd, rank, size, run, dtype):
    """Rank r brings r rows, so rank 0 brings none."""
    parts = [contribution(r, (r, 3), dtype) for r in range(size)]
    result = run(hvd.allgather, parts[rank])
    assert result.dtype == dtype
    np.testing.assert_array_equal(result, np.concatenate(parts))


def test_allgather_shape_in_a_graph(hvd):
    concrete = tf.function(hvd.allgather).get_concrete_function(tf.TensorSpec([4, 3, 2]))
    assert concrete.output_shapes.as_list() == [None, 3, 2]
    concrete = tf.function(hvd.allgather).get_concrete_function(tf.TensorSpec(None))
    assert concrete.output_shapes.rank is None


def test_allgather_of_a_scalar(hvd, run):
    with pytest.raises(ValueError, match="scalar"):
        run(hvd.allgather, tf.constant(1.0))


def test_allgather_of_a_scalar_known_only_at_run_time(hvd):
    gather = tf.function(hvd.allgather, input_signature=[tf.TensorSpec(None)])
    with pytest.raises(tf.errors.InvalidArgumentError, match="at least one dimension"):
        gather(tf.constant(1.0))


@pytest.mark.parametrize("dtype", MOVABLE)
def test_broadcast(hvd, rank, size, run, dtype):
    for root in range(size):
        tensor = contribution(rank, dtype=dtype)
        result = run(lambda x, root=root: hvd.broadcast(x, root), tensor)
        np.testing.assert_array_equal(result, contribution(root, dtype=dtype))
        np.testing.assert_array_equal(tensor, contribution(rank, dtype=dtype))


def test_barrier(hvd, rank, size, run):
    """Nobody leaves before the last has come. All ranks run on one machine, so they share a clock."""

    def body():
        op = hvd.barrier()
        with tf.control_dependencies([op] if op is not None else []):
            return tf.constant(1.0)

    hvd.barrier()
    time.sleep(0.05 * rank)
    come = time.monotonic()
    run(body)
    left = time.monotonic()
    assert min(hvd.allgather_object(left)) >= max(hvd.allgather_object(come))


# --- what the ranks disagree about ---


@pytest.mark.parametrize("case", ["shape", "dtype", "op", "scale", "compression", "root", "kind"])
def test_disagreement_is_an_error_on_every_rank(hvd, rank, size, run, case):
    if size == 1:
        pytest.skip("one rank cannot disagree")
    odd = rank == size - 1
    body, message = {
        "shape": (lambda: hvd.allreduce(tf.ones([3 if odd else 2]), name="x"), "shape"),
        "dtype": (lambda: hvd.allreduce(tf.ones([2], tf.float64 if odd else tf.float32), name="x"), "data type"),
        "op": (lambda: hvd.allreduce(tf.ones([2]), op=hvd.Max if odd else hvd.Sum, name="x"), "reduction operation"),
        "scale": (lambda: hvd.allreduce(tf.ones([2]), prescale_factor=2.0 if odd else 1.0, name="x"), "scale"),
        "compression": (
            lambda: hvd.allreduce(
                tf.ones([2]), compression=hvd.Compression.fp16 if odd else hvd.Compression.none, name="x"
            ),
            "wire dtype",
        ),
        "root": (lambda: hvd.broadcast(tf.ones([2]), 1 if odd else 0, name="x"), "root rank"),
        "kind": (lambda: hvd.allgather(tf.ones([2]), name="x") if odd else hvd.allreduce(tf.ones([2]), name="x"), "x"),
    }[case]
    with pytest.raises((tf.errors.FailedPreconditionError, tf.errors.InvalidArgumentError), match=message):
        run(body)
    assert hvd.allreduce(tf.constant(1.0)) == 1.0  # the session goes on
