"""Collectives inside functions that XLA compiles."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.framework import kernels

from smddp_tf.collectives import xla
from smddp_tf.gradients.reducer import GradientReducer
from tests.support.compiled_functions import check_gradients, compiled, make_step

pytestmark = pytest.mark.ranks("2")


def numbers(rank: int, shape: tuple[int, ...], dtype=np.float32) -> np.ndarray:
    """Whole numbers that differ between ranks and places, so that sums are exact."""
    return (np.arange(np.prod(shape)).reshape(shape) + 10 * rank).astype(dtype)


def of_all(size: int, shape: tuple[int, ...], dtype=np.float32) -> np.ndarray:
    return np.stack([numbers(rank, shape, dtype) for rank in range(size)])


def compiled_ops(function) -> list[tf.Operation]:
    ops = function.get_concrete_function().graph.get_operations()
    return [op for op in ops if op.type == xla.OP_TYPE]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int64", "uint8"])
def test_allreduce(hvd, rank, size, dtype):
    # Transposed: XLA would like to keep the matrix as it lies.
    step = compiled(lambda x: hvd.allreduce(tf.transpose(x), op=hvd.Sum))
    dtype = tf.as_dtype(dtype).as_numpy_dtype
    got = step(tf.constant(numbers(rank, (3, 4), dtype)))
    np.testing.assert_array_equal(got, of_all(size, (3, 4), dtype).sum(0, dtype=dtype).T)


def test_grouped_allreduce_of_several_dtypes(hvd, rank, size):
    step = compiled(lambda x, i: hvd.grouped_allreduce([x, i, 2 * x], op=hvd.Max))
    x, i, doubled = step(numbers(rank, (2, 3)), numbers(rank, (4,), np.int32))
    np.testing.assert_array_equal(x, of_all(size, (2, 3)).max(0))
    np.testing.assert_array_equal(i, of_all(size, (4,), np.int32).max(0))
    np.testing.assert_array_equal(doubled, 2 * of_all(size, (2, 3)).max(0))


def test_scales_and_compression(hvd, rank, size):
    step = compiled(
        lambda x: hvd.allreduce(x, prescale_factor=2.0, postscale_factor=0.5, compression=hvd.Compression.fp16)
    )
    np.testing.assert_allclose(step(numbers(rank, (5,))), of_all(size, (5,)).mean(0), rtol=1e-3)


@pytest.mark.parametrize("dtype", ["float32", "int16", "bool", "complex64"])
def test_broadcast_and_allgather(hvd, rank, size, dtype):
    step = compiled(lambda x: (hvd.broadcast(x, size - 1), hvd.allgather(x)))
    everything = of_all(size, (2, 3), np.int32) % 7
    everything = (everything % 2 == 0) if dtype == "bool" else everything.astype(dtype)
    received, gathered = step(everything[rank])
    np.testing.assert_array_equal(received, everything[size - 1])
    np.testing.assert_array_equal(gathered, np.concatenate(everything))


def test_broadcast_variables(hvd, rank, size):
    variables = [tf.Variable(numbers(rank, (2, 2))), tf.Variable(rank)]
    compiled(lambda: hvd.broadcast_variables(variables, root_rank=size - 1))()
    np.testing.assert_array_equal(variables[0], numbers(size - 1, (2, 2)))
    assert int(variables[1]) == size - 1


def test_slices_are_gathered(hvd, rank, size):
    @compiled
    def step(values):
        slices = tf.IndexedSlices(values, tf.constant([0, 2]) + rank, dense_shape=tf.constant([8, 3]))
        return tf.convert_to_tensor(hvd.allreduce(slices, op=hvd.Sum))

    expected = np.zeros((8, 3), np.float32)
    for other in range(size):
        expected[[other, other + 2]] += numbers(other, (2, 3))
    np.testing.assert_array_equal(step(numbers(rank, (2, 3))), expected)


def loss_of(hvd, rank, x):
    """Its gradient, with the gradients of collectives as documented, is (size + 1) / 2 + 2 for every element."""
    mine = rank + 1.0
    reduced = tf.reduce_sum(hvd.allreduce(x)) * mine
    received = tf.reduce_sum(hvd.broadcast(x, 0)) * mine * tf.cast(hvd.size(), tf.float32)
    return reduced + received + tf.reduce_sum(hvd.allgather(x)) * mine


def expected_gradient(rank: int, size: int) -> float:
    mean = (size + 1) / 2
    return mean + (mean * size if rank == 0 else 0.0) + mean


@pytest.mark.parametrize("tape_inside", [True, False])
def test_gradients(hvd, rank, size, tape_inside):
    def gradient(loss, x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            value = loss(x)
        return tape.gradient(value, x)

    x = tf.constant([1.0, 2.0, 3.0])
    if tape_inside:
        got = compiled(lambda x: gradient(lambda x: loss_of(hvd, rank, x), x))(x)
    else:
        got = gradient(compiled(lambda x: loss_of(hvd, rank, x)), x)
    np.testing.assert_allclose(got, [expected_gradient(rank, size)] * 3)


def test_tape_makes_one_op_of_all_gradients(hvd, rank, size):
    step = tf.function(make_step(hvd, rank), jit_compile=True, input_signature=[tf.TensorSpec([])])
    check_gradients(step(3.0), 3.0, size)
    ops = compiled_ops(step)
    assert [op.get_attr("kind") for op in ops] == [b"reduce_gradients"]
    assert all(list(op.get_attr("indices")) == [0, 1, 2] for op in ops)


def test_some_ranks_compile_and_others_do_not(hvd, rank, size):
    if size == 1:
        pytest.skip("one rank has nobody to differ from")
    steps = [tf.function(make_step(hvd, rank), jit_compile=jit) for jit in (True, False)]
    reduce_max = [tf.function(lambda x: hvd.allreduce(x, op=hvd.Max, name="mixed"), jit_compile=jit) for jit in (1, 0)]
    for i in range(4):
        check_gradients(steps[(rank + i) % 2](tf.constant(float(i))), i, size)
        assert float(reduce_max[(rank + i) % 2](tf.constant(float(rank + i)))) == size - 1 + i


def test_retracing_and_several_functions(hvd, rank, size):
    one, other, plain = compiled(make_step(hvd, rank)), compiled(make_step(hvd, rank)), make_step(hvd, rank)
    for factor in (1.0, 2.0, 3.0):  # Python numbers, so each call traces anew
        check_gradients(one(factor), factor, size)
        check_gradients(plain(factor), factor, size)
        check_gradients(other(tf.constant(factor)), factor, size)
    shapes = compiled(lambda x: hvd.allreduce(x * (rank + 1.0)))
    for length in (1, 2, 3):
        np.testing.assert_allclose(shapes(tf.ones([length])), [(size + 1) / 2] * length)


def test_calls_of_one_function_by_another(hvd, rank, size):
    inner = tf.function(lambda x: hvd.allreduce(x, op=hvd.Sum, name="inner"), autograph=False)

    @compiled
    def outer(x):
        before = hvd.allreduce(x, op=hvd.Sum)
        return before, inner(x + 1), hvd.allreduce(x + 2, op=hvd.Sum)

    np.testing.assert_array_equal(inner(1.0), size)  # traced for a plain graph first
    total = size * (size - 1) / 2
    assert [float(y) for y in outer(tf.constant(float(rank)))] == [total, total + size, total + 2 * size]


def test_independent_ops_that_become_ready_in_another_order_on_each_rank(hvd, rank, size):
    @compiled
    def step(x, matrix):
        results = []
        for i in range(10):
            if i % size == rank:  # these come late here, others elsewhere
                for _ in range(4):
                    matrix = tf.tanh(matrix @ matrix)
                x_i = x + tf.reduce_sum(matrix) * 0.0
            else:
                x_i = x
            results.append(hvd.allreduce(x_i + float(i), op=hvd.Sum))
        return results

    total = size * (size - 1) / 2
    for _ in range(3):
        results = step(tf.constant(float(rank)), tf.eye(150))
        assert [float(y) for y in results] == [total + size * i for i in range(10)]


def test_every_op_reads_what_the_one_before_has_assigned(hvd, size):
    """XLA keeps no other order. In branches too, which take the variable in and hand it on."""

    @compiled
    def step():
        x = tf.constant(1.0)
        first = hvd.allreduce(x, name="first")
        second = hvd.allreduce(x, name="second")
        branch = tf.cond(first > 0, lambda: hvd.allreduce(x, name="in branch"), lambda: x)
        third = hvd.allreduce(x, name="third")
        return first, second, branch, third

    first, second, third = compiled_ops(step)
    [branch] = [op for op in first.graph.get_operations() if op.type == "If"]
    reads = [read_in_front_of(op) for op in (first, second, third)]
    variable = reads[0].inputs[0]
    assert all(read.inputs[0] is variable for read in reads)
    assert variable.ref() in {tensor.ref() for tensor in branch.inputs}
    assigned = [op for op in first.graph.get_operations() if op.type == "AssignVariableOp"]
    assert [assign.inputs[1].op.inputs[0].op for assign in assigned] == [first, second, third]
    assert assigned[0] in reads[1].control_inputs
    assert assigned[1] in branch.control_inputs
    assert branch in reads[2].control_inputs


def read_in_front_of(op: tf.Operation) -> tf.Operation:
    """The op that reads the variable whose value is the last input of `op`."""
    read = op.inputs[-1].op
    return read if read.type == "ReadVariableOp" else read_in_front_of(read)


def test_branches_and_loops(hvd, rank, size):
    reducer = GradientReducer("test.branch")
    variable = tf.Variable([1.0, 2.0])

    @tf.function(jit_compile=True)
    def step(i, x):
        """Reduces in one branch only, as gradient accumulation does; then in a loop."""
        if i % 2 == 0:
            x = reducer([x], [variable])[0]
        total = x
        for _ in range(3):
            total += hvd.allreduce(x, op=hvd.Max)
        return total

    mean = (size - 1) / 2
    for i in range(4):
        got = step(tf.constant(i), tf.constant([0.0, 1.0]) + rank)
        x = np.array([0.0, 1.0]) + (mean if i % 2 == 0 else rank)
        largest = np.array([0.0, 1.0]) + (mean if i % 2 == 0 else size - 1)
        np.testing.assert_allclose(got, x + 3 * largest)


def test_xla_has_kernels_of_the_one_op_only(hvd):
    """With kernels for the others, XLA's autoclustering would swallow the gradients of plain functions."""
    compiled(lambda: hvd.allreduce(tf.constant(1.0)))()  # loads the kernels
    for op in ("SmddpReduceGradient", "SmddpAllreduce", "SmddpBroadcast", "SmddpAllgather", "SmddpBarrier"):
        devices = {kernel.device_type for kernel in kernels.get_registered_kernels_for_op(op).kernel}
        assert "CPU" in devices
        assert not any("XLA" in device for device in devices)
    devices = {kernel.device_type for kernel in kernels.get_registered_kernels_for_op(xla.OP_TYPE).kernel}
    assert devices >= {"CPU", "XLA_CPU_JIT", "XLA_GPU_JIT"}


def test_gradients_come_in_the_reverse_order_of_the_collectives(hvd, rank, size):
    """Their order must not depend on what a rank has traced before, nor on its other collectives."""
    if rank == size - 1:
        compiled(lambda x: x + hvd.rank())(tf.ones([2]))
    names = [f"ordered.{index}" for index in range(6)]

    def step(xs):
        with tf.GradientTape() as tape:
            tape.watch(xs)
            ys = [
                hvd.allreduce(x, name=name) if i % 2 else hvd.broadcast(x, 0, name=name)
                for i, (x, name) in enumerate(zip(xs, names))
            ]
            loss = tf.add_n([tf.reduce_sum(y * y) * (rank + 1.0) for y in ys])
        return tape.gradient(loss, xs)

    function = compiled(step)
    xs = [tf.constant(numbers(rank, (2, 3)) + index) for index in range(6)]
    graph = function.get_concrete_function(xs).graph
    found = [op.get_attr("tensor_name").decode() for op in graph.get_operations() if op.type == xla.OP_TYPE]
    assert found == names + [f"{name}.gradient" for name in reversed(names)]
    for index, gradient in enumerate(function(xs)):
        mean = of_all(size, (2, 3)).mean(0) + index
        everywhere = 2 * mean * (size + 1) / 2
        first = 2 * (numbers(0, (2, 3)) + index) * (size + 1) / 2 * (rank == 0)
        np.testing.assert_allclose(gradient, everywhere if index % 2 else first, rtol=1e-6)


@pytest.mark.parametrize("device", ["", "/device:CPU:0"])
def test_the_variable_that_orders_calls_lies_where_their_function_runs(hvd, monkeypatch, device):
    """tf.device("") would put it on the CPU, from where a function compiled for a GPU cannot read it."""
    asked = []
    monkeypatch.setattr(xla, "_order", {})
    monkeypatch.setattr(tf, "Variable", lambda *_, **__: asked.append(context.context().device_name))
    tf.function(lambda: xla._order_variable(device)).get_concrete_function()
    assert [bool(name) for name in asked] == [bool(device)]
