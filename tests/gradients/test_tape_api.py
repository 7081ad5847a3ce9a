"""The tape's whole interface: local sources, groups, Horovod's arguments, and the helpers scripts import beside it."""

from __future__ import annotations

import copy
import types
import warnings

import numpy as np
import pytest
import tensorflow as tf

pytestmark = pytest.mark.ranks("1", "2")


def mean_weight(size: int) -> float:
    return (size + 1) / 2


def test_local_sources_stay_and_are_scaled(hvd, rank, size, run):
    """Their shapes differ between the ranks; one of them has rows as its gradient, one has none."""
    shared, mine = tf.Variable([1.0, 2.0]), tf.Variable(tf.ones([rank + 1]))
    table, unused = tf.Variable(tf.ones([rank + 3, 2])), tf.Variable(1.0)
    sources = [mine, shared, table, unused]

    def body(scale):
        with tf.GradientTape() as tape:
            rows = tf.gather(table, [rank, rank])
            loss = (tf.reduce_sum(shared) + 3.0 * tf.reduce_sum(mine) + tf.reduce_sum(rows)) * (rank + 1.0)
        tape = hvd.DistributedGradientTape(tape, scale_local_gradients=scale)
        for source in (mine, table, unused):
            tape.register_local_source(source)
        grads = tape.gradient(loss, sources)
        assert isinstance(grads[2], tf.IndexedSlices)
        assert grads[3] is None
        return [grads[0], grads[1], tf.convert_to_tensor(grads[2])]

    for scale in (True, False):
        divisor = size if scale else 1
        of_mine, of_shared, of_table = run(lambda scale=scale: body(scale))
        np.testing.assert_allclose(of_shared, [mean_weight(size)] * 2)
        np.testing.assert_allclose(of_mine, [3.0 * (rank + 1) / divisor] * (rank + 1), rtol=1e-6)
        expected = np.zeros((rank + 3, 2), np.float32)
        expected[rank] = 2.0 * (rank + 1) / divisor
        np.testing.assert_allclose(of_table, expected, rtol=1e-6)


def test_partial_tape(hvd, rank, size, run):
    """A layer that is built while the tape records; sources given as Keras variables and as TensorFlow's."""
    import keras

    keras.utils.set_random_seed(3)
    inputs = tf.ones([2, 3])
    for local, form in (("one", lambda v: v), ("list", lambda v: v.value), ("none", lambda v: v)):
        layers = [keras.layers.Dense(2), keras.layers.Dense(1)]
        layers[1].build((None, 2))
        wanted = {"one": layers[0], "list": [layers[0]], "none": None}[local]
        layers[0].build((None, 3))
        sources = [form(layer.kernel) for layer in layers]

        def body(wrap, weight, layers=layers, sources=sources):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(layers[1](layers[0](inputs))) * weight
            return wrap(tape).gradient(loss, sources)

        got = run(
            lambda body=body, wanted=wanted: body(
                lambda tape: hvd.PartialDistributedGradientTape(tape, local_layers=wanted), rank + 1.0
            )
        )
        first, second = body(lambda tape: tape, 1.0)
        factor = mean_weight(size) if local == "none" else (rank + 1.0) / size
        np.testing.assert_allclose(got[0], first * factor, rtol=1e-5)
        np.testing.assert_allclose(got[1], second * mean_weight(size), rtol=1e-5)
    for wrong in ([tf.Variable(1.0)], "layer", 7):
        with pytest.raises(ValueError, match="must be a Keras layer or a list of Keras layers"):
            hvd.PartialDistributedGradientTape(tf.GradientTape(), local_layers=wrong)


def test_all_arguments_by_place_and_horovods_fourth_argument_of_gradient(hvd, rank, size):
    variables = [tf.Variable([1.0]), tf.Variable([2.0])]

    def recorded():
        with tf.GradientTape() as tape:
            loss = tf.add_n(variables) * (rank + 1.0)
        groups = [[variables[0]], [variables[1]]]
        wrapped = hvd.DistributedGradientTape(
            tape, "", "", hvd.Compression.none, True, hvd.Sum, 1.0, 0, groups, hvd.global_process_set, True
        )
        return wrapped, loss

    for call in (
        lambda tape, loss: tape.gradient(loss, variables, None, True),
        lambda tape, loss: tape.gradient(loss, variables, use_generic_names=True),
        lambda tape, loss: tape.gradient(loss, variables, None, tf.UnconnectedGradients.ZERO),
    ):
        for grad in call(*recorded()):
            np.testing.assert_allclose(grad, [mean_weight(size) * size])


def test_groups_are_checked(hvd, rank, size):
    import keras

    variable = tf.Variable(1.0)
    tapes = (
        lambda **more: hvd.DistributedGradientTape(tf.GradientTape(), **more),
        lambda **more: hvd.PartialDistributedGradientTape(tf.GradientTape(), **more),
        lambda **more: hvd.DistributedOptimizer(keras.optimizers.SGD(), **more),
        lambda **more: hvd.DistributedOptimizer(tf.compat.v1.train.GradientDescentOptimizer(0.1), **more),
    )
    for make in tapes:
        with warnings.catch_warnings():
            warnings.simplefilter("error", DeprecationWarning)
            for right in (None, 1, 3, np.int64(2), [], [[variable]]):
                make(groups=right)
        with pytest.warns(DeprecationWarning, match="num_groups"):
            make(num_groups=2)
        for wrong in (0, -1, True, 1.5, "two", [variable], [[1]]):
            with pytest.raises(ValueError, match="`groups` must be a positive integer or a list of lists"):
                make(groups=wrong)
        with pytest.raises(ValueError, match="`groups` must be"), pytest.warns(DeprecationWarning):
            make(num_groups=-1)


def test_the_rest_of_the_interface_is_the_wrapped_tapes(hvd, rank, size):
    x = tf.Variable([1.0, 2.0])
    with tf.GradientTape(persistent=True) as inner:
        y = x * x * (rank + 1.0)
        with inner.stop_recording():
            z = x * 5.0
    tape = hvd.DistributedGradientTape(inner)
    np.testing.assert_allclose(tape.jacobian(y, x), np.diag([2.0, 4.0]) * (rank + 1.0))
    np.testing.assert_allclose(tape.gradient(y, x), [2 * mean_weight(size), 4 * mean_weight(size)])
    assert tape.gradient(z, x) is None
    with tape:
        tape.reset()
        w = x * 7.0 * (rank + 1.0)
    np.testing.assert_allclose(tape.gradient(w, x), [7.0 * mean_weight(size)] * 2)
    assert [v.ref() for v in tape.watched_variables()] == [x.ref()]


def test_methods_may_be_replaced(hvd, rank, size):
    """On our tape, on the wrapped one before, and by a class of the user's: each replacement is called once."""
    x = tf.Variable([1.0, 2.0])
    calls = []

    class Own(tf.GradientTape):
        def __init__(self, label):
            super().__init__(persistent=True)
            self.label = label

        def gradient(self, *args, **kwargs):
            calls.append(self.label)
            return super().gradient(*args, **kwargs)

        def named(self):
            return f"{self.label} of {rank}"

    def counted(call, label):
        def method(self, *args, **kwargs):
            calls.append(label)
            return call(*args, **kwargs)

        return method

    with Own("class") as inner:
        y = x * x * (rank + 1.0)
    inner.gradient = types.MethodType(counted(inner.gradient, "wrapped"), inner)
    tape = hvd.DistributedGradientTape(inner)
    tape.raw_gradient = tape.gradient
    tape.gradient = types.MethodType(counted(tape.raw_gradient, "ours"), tape)
    np.testing.assert_allclose(tape.gradient(y, x), [2.0 * mean_weight(size), 4.0 * mean_weight(size)])
    assert calls == ["ours", "wrapped", "class"]
    assert not hasattr(inner, "raw_gradient")
    np.testing.assert_allclose(inner.gradient(y, x), [2.0 * (rank + 1), 4.0 * (rank + 1)])
    assert (tape.label, tape.named()) == ("class", f"class of {rank}")
    tape.label = "changed"
    assert inner.label == "changed"
    del tape.gradient
    np.testing.assert_allclose(tape.gradient(y, x), [2.0 * mean_weight(size), 4.0 * mean_weight(size)])
    with pytest.raises(AttributeError, match="nothing"):
        _ = tape.nothing
    with pytest.raises(AttributeError):
        _ = copy.copy(hvd.DistributedGradientTape.__new__(hvd.DistributedGradientTape)).label


def test_own_compressor_class_and_instance(hvd, rank, size):
    """Duck-typed: no base class, static methods or those of an object, anywhere a compressor is taken."""
    import keras

    class Doubled:
        @staticmethod
        def compress(tensor):
            return tensor * 2.0, "context"

        @staticmethod
        def decompress(tensor, ctx):
            assert ctx == "context"
            return tensor * 5.0

    class Times:
        def __init__(self, factor):
            self.factor = factor

        def compress(self, tensor):
            return tensor * self.factor, None

        def decompress(self, tensor, ctx):
            return tensor

    for compression in (Doubled, Times(10.0)):
        np.testing.assert_allclose(
            hvd.allreduce(tf.constant([rank + 1.0]), compression=compression), [10.0 * mean_weight(size)], rtol=1e-6
        )
        grouped = hvd.grouped_allreduce([tf.constant([rank + 1.0]), tf.constant(1.0)], compression=compression)
        np.testing.assert_allclose(grouped[0], [10.0 * mean_weight(size)], rtol=1e-6)
        if size > 1:  # alone nothing travels, and nothing is compressed
            variable = keras.Variable([0.0])
            hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), compression=compression).apply(
                [tf.constant([rank + 1.0])], [variable]
            )
            np.testing.assert_allclose(variable, [-10.0 * mean_weight(size)], rtol=1e-6)


def test_what_scripts_import_beside_the_api(hvd, rank, size):
    import keras

    from smddp_tf import mpi_ops
    from smddp_tf.compression import Compressor, FP16Compressor, NoneCompressor

    assert hvd.Compression.none is NoneCompressor
    assert hvd.Compression.fp16 is FP16Compressor
    assert issubclass(FP16Compressor, Compressor)
    assert [n for n in range(9) if hvd.check_num_rank_power_of_2(n)] == [1, 2, 4, 8]
    assert hvd.handle_average_backwards_compatibility(None, None) == hvd.Average
    assert hvd.handle_average_backwards_compatibility(hvd.Max, None) == hvd.Max
    assert hvd.gpu_available("tensorflow") == bool(hvd.cuda_built() and tf.config.list_physical_devices("GPU"))
    assert hvd.split_list([1, 2, 3, 4, 5], 3) == [[1, 2], [3, 4], [5]]
    tensors = [tf.Variable(1.0), keras.Variable(2.0)]
    refs = hvd.vars_to_refs([tensors[0], [tensors[1]]])
    assert {refs: "key"}[hvd.vars_to_refs([tensors[0], [tensors[1]]])] == "key"
    back = hvd.refs_to_vars(refs)
    assert back[0] is tensors[0]
    assert back[1][0] is tensors[1]
    assert hvd._executing_eagerly()
    assert not tf.function(lambda: tf.constant(hvd._executing_eagerly()))()
    calls = []
    cached = hvd._cache(lambda x: calls.append(x) or x)
    assert [cached(1), cached(1), cached(2)] == [1, 1, 2]
    assert calls == [1, 2]
    assert hvd._make_subgraph(lambda x: x + 1)(tf.constant(1)) == 2
    assert float(mpi_ops._allreduce(tf.constant(rank + 1.0))) == mean_weight(size) * size
    assert hvd.mpi_ops is mpi_ops
    assert all(hasattr(mpi_ops, name) for name in mpi_ops.__all__)
    reduce = hvd._make_allreduce_grads_fn("scripts_own", op=hvd.Sum)
    grads = reduce([tf.constant([rank + 1.0]), None])
    np.testing.assert_allclose(grads[0], [mean_weight(size) * size])
    assert grads[1] is None
    with pytest.raises(NotImplementedError, match="backward_passes_per_step"):
        hvd.LocalGradientAggregationHelper(2, None)
