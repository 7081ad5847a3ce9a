"""`allreduce` of a TensorFlow tensor, eager and in a `tf.function`."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.support.contributions import REDUCIBLE, SHAPES, contribution, everybody

pytestmark = pytest.mark.ranks("1", "2", "2+2", "2+1")

OPS = {"Average": np.mean, "Sum": np.sum, "Min": np.min, "Max": np.max, "Product": np.prod}


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
