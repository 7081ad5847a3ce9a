"""DistributedGradientTape: the gradients of all ranks."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

pytestmark = pytest.mark.ranks("1", "2")


@pytest.fixture(params=["eager", "graph", "functions run eagerly"])
def run(request):
    """Calls a function without arguments in one of TensorFlow's modes."""
    if request.param == "eager":
        yield lambda function: function()
        return
    tf.config.run_functions_eagerly(request.param != "graph")
    yield lambda function: tf.function(function)()
    tf.config.run_functions_eagerly(False)


def mean_weight(size: int) -> float:
    """The mean over the ranks of rank + 1, the weight each rank gives its own loss."""
    return (size + 1) / 2


def make_variables() -> list[tf.Variable]:
    return [tf.Variable([1.0, 2.0]), tf.Variable(3.0), tf.Variable(tf.zeros([0, 2])), tf.Variable([[1.0] * 3] * 2)]


def loss_of(variables, weight: float) -> tf.Tensor:
    return weight * tf.add_n([tf.reduce_sum(v * v) for v in variables])


def gradients_by(hvd, variables, weight, **options):
    with tf.GradientTape() as tape:
        loss = loss_of(variables, weight)
    return hvd.DistributedGradientTape(tape, **options).gradient(loss, variables)


def expect(grads, variables, factor: float, rtol: float = 1e-6) -> None:
    assert len(grads) == len(variables)
    for grad, variable in zip(grads, variables):
        assert grad.dtype == variable.dtype
        assert grad.shape == variable.shape
        np.testing.assert_allclose(grad, 2.0 * variable.numpy() * factor, rtol=rtol)


def test_gradients_are_averaged(hvd, rank, size, run):
    variables = make_variables()
    expect(run(lambda: gradients_by(hvd, variables, rank + 1.0)), variables, mean_weight(size))


def test_sum(hvd, rank, size, run):
    variables = make_variables()
    grads = run(lambda: gradients_by(hvd, variables, rank + 1.0, op=hvd.Sum))
    expect(grads, variables, mean_weight(size) * size)


@pytest.mark.parametrize("factor", [0.5, 2.0, 3.0])
def test_predivide_changes_nothing_but_the_rounding(hvd, rank, size, run, factor):
    variables = make_variables()
    grads = run(lambda: gradients_by(hvd, variables, rank + 1.0, gradient_predivide_factor=factor))
    expect(grads, variables, mean_weight(size))


@pytest.mark.parametrize("compression", ["fp16", "bf16"])
def test_compression(hvd, rank, size, run, compression):
    variables = make_variables()
    chosen = getattr(hvd.Compression, compression)
    grads = run(lambda: gradients_by(hvd, variables, rank + 1.0, compression=chosen))
    expect(grads, variables, mean_weight(size), rtol=1e-2)


def test_compression_narrows(hvd, size, run):
    """1 + 2**-12 does not fit into float16, so it must come back as 1; alone nothing travels."""
    variable = tf.Variable(1.0)

    def body():
        with tf.GradientTape() as tape:
            loss = variable * (1 + 2**-12)
        return hvd.DistributedGradientTape(tape, compression=hvd.Compression.fp16).gradient(loss, variable)

    assert run(body) == (1.0 if size > 1 else 1 + 2**-12)


def test_own_compressor(hvd, rank, size, run):
    class Halved:
        @staticmethod
        def compress(tensor):
            return tf.cast(tensor * 0.5, tf.float64), tensor.dtype

        @staticmethod
        def decompress(tensor, ctx):
            return tf.cast(tensor, ctx) * 2.0

    variables = make_variables()
    expect(run(lambda: gradients_by(hvd, variables, rank + 1.0, compression=Halved)), variables, mean_weight(size))


def test_dtypes_mix(hvd, rank, size, run):
    variables = [tf.Variable(tf.constant([1.0, 2.0], dtype)) for dtype in ("float32", "float16", "bfloat16", "float64")]

    def body():
        with tf.GradientTape() as tape:
            losses = [tf.cast(tf.reduce_sum(v * v), tf.float32) * (rank + 1.0) for v in variables]
        return hvd.DistributedGradientTape(tape).gradient(losses, variables)

    for grad, variable in zip(run(body), variables):
        assert grad.dtype == variable.dtype
        np.testing.assert_allclose(
            grad.numpy().astype(float), [2 * mean_weight(size), 4 * mean_weight(size)], rtol=1e-2
        )


# --- the interface of tf.GradientTape ---


def test_as_context_manager(hvd, rank, size, run):
    variables = make_variables()

    def body():
        with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
            loss = loss_of(variables, rank + 1.0)
        assert isinstance(tape, tf.GradientTape)
        return tape.gradient(loss, variables)

    expect(run(body), variables, mean_weight(size))


def test_wrapped_while_recording(hvd, rank, size, run):
    variables = make_variables()

    def body():
        with tf.GradientTape(watch_accessed_variables=False) as inner:
            tape = hvd.DistributedGradientTape(inner)
            for variable in variables:
                tape.watch(variable)
            loss = loss_of(variables, rank + 1.0)
        assert [v.ref() for v in tape.watched_variables()] == [v.ref() for v in variables]
        return tape.gradient(loss, variables)

    expect(run(body), variables, mean_weight(size))


def test_none_is_kept(hvd, rank, size, run):
    used, unused = tf.Variable(1.0), tf.Variable(1.0)

    def body():
        with tf.GradientTape() as tape:
            loss = used * (rank + 1.0)
        grads = hvd.DistributedGradientTape(tape).gradient(loss, [unused, used, unused])
        assert grads[0] is None
        assert grads[2] is None
        return grads[1]

    assert run(body) == mean_weight(size)


def test_unconnected_gradients_zero(hvd, rank, run):
    used, unused = tf.Variable(1.0), tf.Variable([1.0, 1.0])

    def body():
        with tf.GradientTape() as tape:
            loss = used * 1.0
        zero = tf.UnconnectedGradients.ZERO
        return hvd.DistributedGradientTape(tape).gradient(loss, [unused, used], unconnected_gradients=zero)

    np.testing.assert_array_equal(run(body)[0], [0.0, 0.0])


def test_single_and_nested_sources(hvd, rank, size, run):
    a, b, c = tf.Variable(1.0), tf.Variable([1.0, 1.0]), tf.Variable(2.0)

    def body(sources):
        with tf.GradientTape() as tape:
            loss = (a + tf.reduce_sum(b) + c) * (rank + 1.0)
        return hvd.DistributedGradientTape(tape).gradient(loss, sources)

    assert run(lambda: body(a)) == mean_weight(size)
    nested = run(lambda: body({"b": b, "ac": (a, [c])}))
    assert nested["ac"][0] == nested["ac"][1][0] == mean_weight(size)
    np.testing.assert_allclose(nested["b"], [mean_weight(size)] * 2)


def test_output_gradients(hvd, rank, size, run):
    variable = tf.Variable([1.0, 1.0])

    def body():
        with tf.GradientTape() as tape:
            target = variable * (rank + 1.0)
        return hvd.DistributedGradientTape(tape).gradient(target, variable, tf.constant([10.0, 20.0]))

    np.testing.assert_allclose(run(body), np.array([10.0, 20.0]) * mean_weight(size))


def test_persistent_tape(hvd, rank, size, run):
    variable = tf.Variable(2.0)

    def body():
        with tf.GradientTape(persistent=True) as inner:
            square, cube = variable**2 * (rank + 1.0), variable**3 * (rank + 1.0)
        tape = hvd.DistributedGradientTape(inner)
        return tape.gradient(square, variable), tape.gradient(cube, variable)

    square, cube = run(body)
    assert float(square) == pytest.approx(4.0 * mean_weight(size))
    assert float(cube) == pytest.approx(12.0 * mean_weight(size))


def test_a_used_tape_says_so(hvd):
    variable = tf.Variable(2.0)
    with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
        loss = variable**2
    tape.gradient(loss, variable)
    with pytest.raises(RuntimeError, match="non-persistent"):
        tape.gradient(loss, variable)


def test_keras_model(hvd, rank, size, run):
    import keras

    keras.utils.set_random_seed(7)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4, "relu"), keras.layers.Dense(1)])
    inputs = tf.reshape(tf.range(12.0), [4, 3]) / 10.0

    def body(weight, wrap):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(inputs)) * weight
        return wrap(tape).gradient(loss, model.trainable_variables)

    reduced = run(lambda: body(rank + 1.0, hvd.DistributedGradientTape))
    for grad, expected in zip(reduced, body(mean_weight(size), lambda tape: tape)):
        np.testing.assert_allclose(grad, expected, rtol=1e-5)


# --- sparse gradients ---


def embedding_gradient(hvd, rank, table, **options):
    with tf.GradientTape() as tape:
        rows = tf.gather(table, tf.range(rank + 1))
        loss = tf.reduce_sum(rows) * (rank + 1.0)
    return hvd.DistributedGradientTape(tape, **options).gradient(loss, [table])[0]


def expected_embedding_gradient(size: int) -> np.ndarray:
    table = np.zeros((6, 2), np.float32)
    for rank in range(size):
        table[: rank + 1] += rank + 1.0
    return table / size


@pytest.mark.parametrize("sparse_as_dense", [False, True])
def test_slices(hvd, rank, size, run, sparse_as_dense):
    table = tf.Variable(tf.ones([6, 2]))
    grad = run(lambda: embedding_gradient(hvd, rank, table, sparse_as_dense=sparse_as_dense))
    assert isinstance(grad, tf.IndexedSlices) != sparse_as_dense
    np.testing.assert_allclose(tf.convert_to_tensor(grad), expected_embedding_gradient(size), rtol=1e-6)


def test_slices_with_predivide(hvd, rank, size, run):
    table = tf.Variable(tf.ones([6, 2]))
    grad = run(lambda: embedding_gradient(hvd, rank, table, gradient_predivide_factor=4.0))
    np.testing.assert_allclose(tf.convert_to_tensor(grad), expected_embedding_gradient(size), rtol=1e-6)


# --- wrong arguments ---


def test_wrong_arguments(hvd):
    with pytest.raises(TypeError, match=r"tf\.GradientTape"):
        hvd.DistributedGradientTape("tape")
    with pytest.raises(ValueError, match="reduced twice"):
        hvd.DistributedGradientTape(hvd.DistributedGradientTape(tf.GradientTape()))
    with pytest.raises(ValueError, match="`op`"):
        hvd.DistributedGradientTape(tf.GradientTape(), op=hvd.Max)
    with pytest.raises(ValueError, match=r"needs op=hvd\.Average"):
        hvd.DistributedGradientTape(tf.GradientTape(), op=hvd.Sum, gradient_predivide_factor=2.0)
    with pytest.raises(ValueError, match="must be positive"):
        hvd.DistributedGradientTape(tf.GradientTape(), gradient_predivide_factor=0.0)
