"""Uses Horovod's API as public programs do that replace parts of it, under the alias, with Keras 3.

mpirun -np 2 python -m smddp_tf.aliases horovod horovod_clients.py FOLDER

Each rank has a table of its own, whose gradients stay there, and a head that all ranks share. What is expected is
computed with NumPy from the data of both ranks.
"""

import inspect
import json
import os
import sys
import types
import zipfile

import horovod
import horovod.tensorflow as hvd
import horovod.tensorflow.keras as hvd_keras
import keras
import numpy as np
import pytest
import tensorflow as tf
from horovod.common.process_sets import ProcessSet

from tests.launch.scripts.recorder import Recorder

RATE, STEPS, ROWS = 0.5, 3, 4
with pytest.raises(ValueError, match="has not been initialized"):
    hvd.rank()
of_launcher = {name: value for name, value in os.environ.items() if name.startswith("HOROVOD_")}
alone = [ProcessSet([one]) for one in range(2)]
hvd.init(process_sets=alone)
rank, size = hvd.rank(), hvd.size()
recorder = Recorder(sys.argv[1], rank)


class Table(keras.layers.Layer):
    """Rows of this rank's own; a model-parallel part, as its variable says."""

    def build(self, input_shape):
        self.rows = self.add_weight(shape=(2,), initializer=keras.initializers.Constant(1.0 + rank))
        self.rows.is_local = True

    def call(self, x):
        return x * self.rows


def model_of_this_rank():
    model = keras.Sequential([keras.Input((2,)), Table(), keras.layers.Dense(1, use_bias=False)])
    model.layers[1].set_weights([np.array([[0.5], [-0.25]])])
    return model


def data_of(one):
    x = np.random.default_rng(one).normal(size=(STEPS * ROWS, 2))
    return x, x.sum(axis=1, keepdims=True) * 0.5 + one


def trained_by_numpy(scale=1.0, momentum=0.0):
    """The table of this rank and the head after `STEPS` steps of all ranks."""
    tables, head, speed = [np.full(2, 1.0 + one) for one in range(size)], np.array([[0.5], [-0.25]]), 0.0
    speeds = [0.0] * size
    for step in range(STEPS):
        rows = slice(step * ROWS, (step + 1) * ROWS)
        of_head = np.zeros_like(head)
        for one in range(size):
            x, y = (array[rows] for array in data_of(one))
            error = 2 * (x * tables[one] @ head - y) / ROWS
            of_head += scale * (x * tables[one]).T @ error / size
            speeds[one] = momentum * speeds[one] - RATE * (x * (error @ head.T)).sum(axis=0) / size * scale
        for one in range(size):
            tables[one] = tables[one] + speeds[one]
        speed = momentum * speed - RATE * of_head
        head = head + speed
    return [tables[rank], head]


def compare(got, expected):
    for mine, wanted in zip(got, expected, strict=True):
        np.testing.assert_allclose(mine, wanted, rtol=2e-5, atol=1e-6)


def hybrid_optimizer(plain, **arguments):
    """Registers local variables when gradients are first reduced, and asks for generic names."""
    optimizer = hvd_keras.DistributedOptimizer(plain, **arguments)
    calls = {"allreduce": 0, "grads": 0}

    def register_then_allreduce(self, grads, variables):
        calls["allreduce"] += 1
        if not self.has_registered:
            for variable in variables:
                if hasattr(variable, "is_local"):
                    self.register_local_var(variable)
            self.has_registered = True
        return self.raw_allreduce(grads, variables)

    def named_allreduce_grads(self, grads, variables):
        calls["grads"] += 1
        assert not [variable for variable in variables if hasattr(variable, "is_local")]
        return self.raw_allreduce_grads(grads, variables, use_generic_names=True)

    optimizer.has_registered = False
    optimizer.raw_allreduce, optimizer.raw_allreduce_grads = optimizer._allreduce, optimizer._allreduce_grads
    optimizer._allreduce = types.MethodType(register_then_allreduce, optimizer)
    optimizer._allreduce_grads = types.MethodType(named_allreduce_grads, optimizer)
    return optimizer, calls


def fit(model, optimizer, **more):
    x, y = data_of(rank)
    model.compile(optimizer, "mse", **{name: more.pop(name) for name in ("run_eagerly",) if name in more})
    model.fit(x, y, batch_size=ROWS, shuffle=False, verbose=0, **more)


def replaced_in_fit(plain, run_eagerly=False, momentum=0.0):
    model, (optimizer, calls) = model_of_this_rank(), hybrid_optimizer(plain)
    fit(model, optimizer, run_eagerly=run_eagerly)
    compare(model.get_weights(), trained_by_numpy(momentum=momentum))
    assert calls["allreduce"] == calls["grads"] > 0, calls


def replaced_in_a_loop():
    model, (optimizer, calls) = model_of_this_rank(), hybrid_optimizer(keras.optimizers.SGD(RATE))

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x) - y))
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))

    loop(step)
    compare(model.get_weights(), trained_by_numpy())
    assert calls == {"allreduce": 1, "grads": 1}, calls


def loop(step):
    x, y = data_of(rank)
    for first in range(0, len(x), ROWS):
        step(tf.constant(x[first : first + ROWS], tf.float32), tf.constant(y[first : first + ROWS], tf.float32))


def replaced_by_another_reduction():
    """What takes the place of a method is used, and the original is not."""
    model, optimizer = model_of_this_rank(), hvd_keras.DistributedOptimizer(keras.optimizers.SGD(RATE))
    optimizer.register_local_var(model.layers[0].rows)
    optimizer._allreduce_grads = lambda grads, variables: [2 * hvd.allreduce(grad) for grad in grads]
    fit(model, optimizer)
    assert optimizer.iterations == STEPS
    _, head = trained_by_numpy()
    twice = [np.array(weight) for weight in model.get_weights()]
    assert np.abs(twice[1] - head).max() > 1e-2, "the original was used"
    gathered = hvd.allgather(twice[1].reshape(1, -1)).numpy()
    assert (gathered == gathered[0]).all(), gathered


def replaced_with_uneven_data():
    """Ranks that run out of data count as little as without the replacement."""
    x = np.random.default_rng(rank).normal(size=(ROWS * (1 + rank), 2))
    weights = []
    for optimizer in (
        hvd_keras.DistributedOptimizer(keras.optimizers.SGD(RATE)),
        hybrid_optimizer(keras.optimizers.SGD(RATE))[0],
    ):
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, kernel_initializer="ones")])
        model.compile(optimizer, "mse")
        model.fit(x, x.sum(axis=1, keepdims=True) * 3, batch_size=ROWS, shuffle=False, verbose=0)
        assert int(optimizer.iterations) == size
        weights.append([np.array(weight) for weight in model.get_weights()])
    assert np.abs(weights[0][0] - 1).max() > 0.1
    compare(*weights)


def infinity_in_a_local_gradient():
    """Only rank 0's table gets an infinite gradient; every rank must skip that step, although it is registered late."""
    scaled = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(RATE), initial_scale=4.0)
    model, (optimizer, _) = model_of_this_rank(), hybrid_optimizer(scaled)
    variables = model.trainable_variables
    optimizer.build(variables)
    start = [np.array(weight) for weight in model.get_weights()]
    infinite = tf.constant([np.inf if rank == 0 else 1.0, 0.0], tf.float32)
    optimizer.apply([infinite, tf.ones([2, 1])], variables)
    compare(model.get_weights(), start)
    assert float(optimizer.dynamic_scale) == 2.0
    optimizer.apply([tf.ones([2]) * 2, tf.ones([2, 1]) * 2], variables)
    compare(model.get_weights(), [start[0] - RATE / size, start[1] - RATE])


def compute_gradients():
    model, optimizer = model_of_this_rank(), hvd_keras.DistributedOptimizer(keras.optimizers.SGD(RATE))
    optimizer.register_local_var(model.layers[0].rows)

    def step(x, y):
        variables = model.trainable_variables
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x) - y))
        optimizer.apply_gradients(optimizer._compute_gradients(loss, var_list=variables, tape=tape))

    loop(step)
    compare(model.get_weights(), trained_by_numpy())
    shared = tf.Variable(1.0 + rank)
    [(grad, same)] = optimizer._compute_gradients(lambda: shared * shared, [shared])
    assert same is shared
    assert float(grad) == 2.0 * (1 + rank)
    with pytest.raises(ValueError, match="`tape` must be"):
        optimizer._compute_gradients(tf.constant(1.0), [shared])


def replaced_tape():
    model, optimizer = model_of_this_rank(), keras.optimizers.SGD(RATE)

    def gradient(self, target, sources, *args, **kwargs):
        kwargs["use_generic_names"] = True
        return self.raw_gradient(target, sources, *args, **kwargs)

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x) - y))
        tape = hvd.DistributedGradientTape(tape, sparse_as_dense=True)
        watched = {variable.ref() for variable in tape.watched_variables()}
        for variable in model.trainable_variables:
            if hasattr(variable, "is_local"):
                assert variable.value.ref() in watched
                tape.register_local_source(variable)
        tape.raw_gradient = tape.gradient
        tape.gradient = types.MethodType(gradient, tape)
        grads = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(grads, model.trainable_variables))

    loop(step)
    compare(model.get_weights(), trained_by_numpy())


def replaced_callback():
    """`on_batch_end` that registers local variables when it is first called: they are not sent."""
    model, (optimizer, _) = model_of_this_rank(), hybrid_optimizer(keras.optimizers.SGD(RATE))
    model.layers[1].set_weights([np.array([[0.5], [-0.25]]) + rank])
    callback = hvd_keras.callbacks.BroadcastGlobalVariablesCallback(0)
    callback.has_registered = False

    def on_batch_end(self, batch, logs=None):
        if not self.has_registered:
            for variable in self.model.variables:
                if hasattr(variable, "is_local"):
                    self.register_local_var(variable)
            self.has_registered = True
        return self.raw_on_batch_end(batch, logs)

    callback.raw_on_batch_end = callback.on_batch_end
    callback.on_batch_end = types.MethodType(on_batch_end, callback)
    fit(model, optimizer, callbacks=[callback])
    table, head = (np.array(weight) for weight in model.get_weights())
    heads, tables = (hvd.allgather(array.reshape(1, -1)).numpy() for array in (head, table))
    assert (heads == heads[0]).all(), heads
    assert len({tuple(row) for row in tables}) == size, tables


def changed_defaults():
    defaults = list(hvd.broadcast.__defaults__)
    assert defaults[:2] == [None, False]
    defaults[1] = True
    hvd.broadcast.__defaults__ = tuple(defaults)
    assert inspect.unwrap(hvd.broadcast).__defaults__[1] is False
    assert float(hvd.broadcast(tf.constant(2.0 + rank), 0)) == 2.0
    assert inspect.unwrap(hvd.broadcast).__defaults__[1] is True
    hvd.broadcast.__defaults__ = ("a name of mine", True, alone[rank])
    assert float(hvd.broadcast(tf.constant(2.0 + rank), rank)) == 2.0 + rank
    hvd.broadcast.__defaults__ = ("a name of mine", True, hvd.global_process_set)
    with pytest.raises(tf.errors.OpError, match="for 'a name of mine'"):
        hvd.broadcast(tf.ones([1 + rank]), 0)
    hvd.broadcast.__defaults__ = (None, False, hvd.global_process_set)
    variables = [tf.Variable([1.0 + rank])]
    hvd.broadcast_variables(variables, root_rank=0)
    assert variables[0].numpy() == [1.0]


def grouped_in_a_custom_gradient():
    """Rows of all ranks forward, sums of the gradients' rows backward: tables that are cut by rows."""

    @tf.custom_gradient
    def gathered(*parts):
        outputs = hvd.grouped_allgather(list(parts))

        def backward(*grads):
            return hvd.grouped_reducescatter(list(grads), op=hvd.Sum)

        return outputs, backward

    def part(one, count):
        return np.random.default_rng(10 + one).normal(size=(2, count)).astype("float32")

    parts = [tf.Variable(part(rank, 1)), tf.Variable(part(rank, 3))]
    factors = [np.arange(size * 2 * count).reshape(-1, count).astype("float32") * (rank + 1) for count in (1, 3)]

    def loss_and_grads():
        with tf.GradientTape() as tape:
            wholes = gathered(*parts)
            loss = sum(tf.reduce_sum(whole * factor) for whole, factor in zip(wholes, factors))
        return wholes, tape.gradient(loss, parts)

    for function in (loss_and_grads, tf.function(loss_and_grads)):
        wholes, grads = function()
        compare(wholes, [np.concatenate([part(one, count) for one in range(size)]) for count in (1, 3)])
        total = sum(one + 1 for one in range(size)) / (rank + 1)
        compare(grads, [factor[2 * rank : 2 * rank + 2] * total for factor in factors])


def alltoall_with_splits():
    """Rank r sends r + 1 + q rows to rank q, and gets the received splits back, eagerly and in a function."""
    splits = [rank + 1 + other for other in range(size)]
    rows = np.arange(sum(splits) * 2).reshape(-1, 2).astype("float32") + 100 * rank

    def exchange(tensor):
        with tf.GradientTape() as tape:
            tape.watch(tensor)
            received, received_splits = hvd.alltoall(tensor, splits=splits, name="exchange")
            loss = tf.reduce_sum(received * tf.cast(rank + 1, tf.float32))
        return received, received_splits, tape.gradient(loss, tensor)

    def rows_from(one):
        sent = [one + 1 + other for other in range(size)]
        whole = np.arange(sum(sent) * 2).reshape(-1, 2) + 100 * one
        return np.split(whole, np.cumsum(sent)[:-1])[rank]

    for function in (exchange, tf.function(exchange)):
        received, received_splits, grad = function(tf.constant(rows))
        assert received_splits.numpy().tolist() == [one + 1 + rank for one in range(size)]
        compare([received], [np.concatenate([rows_from(one) for one in range(size)])])
        compare([grad[:, 0]], [np.repeat(np.arange(size) + 1.0, splits)])


def join_as_a_barrier():
    for _ in range(2):
        assert 0 <= int(hvd.join()) < size
    assert float(hvd.allreduce(tf.constant(float(rank)), op=hvd.Sum)) == sum(range(size))


def variables_of_the_launcher():
    """The one that is there when `init` is called stays, the others are set."""
    assert of_launcher == {"HOROVOD_CROSS_SIZE": "of a launcher"}
    values = {name: int(os.environ[f"HOROVOD_{name}"]) for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")}
    assert values == {"RANK": rank, "SIZE": size, "LOCAL_RANK": hvd.local_rank(), "LOCAL_SIZE": hvd.local_size()}
    assert os.environ["HOROVOD_CROSS_RANK"] == str(hvd.cross_rank())
    assert os.environ["HOROVOD_CROSS_SIZE"] == "of a launcher"
    assert os.environ["HOROVOD_HOSTNAME"]


def says_horovod(optimizer, module, name):
    assert "horovod" in str(optimizer)
    assert repr(optimizer).startswith(f"<{module}.{name} object")
    assert type(optimizer).__module__ == optimizer.__module__ == module
    assert type(optimizer).__name__ == name


def names_of_wrapped_optimizers():
    for plain in (
        keras.optimizers.Adam(),
        keras.optimizers.SGD(0.1, gradient_accumulation_steps=2),
        keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD()),
    ):
        kind = type(plain)
        for module in (hvd, hvd_keras):
            optimizer = module.DistributedOptimizer(kind.from_config(plain.get_config()))
            says_horovod(optimizer, "horovod._keras", kind.__name__)
            says_horovod(type(optimizer).from_config(optimizer.get_config()), "horovod._keras", kind.__name__)
            assert isinstance(optimizer, kind)
            saved = keras.optimizers.serialize(optimizer)
            assert (saved["module"], saved["class_name"]) == ("keras.optimizers", kind.__name__)
        assert "horovod" not in str(plain)
    says_horovod(
        hvd.DistributedOptimizer(tf.compat.v1.train.GradientDescentOptimizer(0.1)),
        "horovod.tensorflow",
        "_DistributedOptimizer",
    )
    for name in ("horovod.tensorflow", "horovod.tensorflow.keras", "horovod.tensorflow.mpi_ops"):
        assert sys.modules.get(name, hvd.mpi_ops).__name__ == name


def files_say_keras():
    keras.utils.set_random_seed(1)
    path = os.path.join(sys.argv[1], f"saved-{rank}.keras")
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    fit(model, hvd_keras.DistributedOptimizer(keras.optimizers.Adam(0.01)))
    model.save(path)
    text = zipfile.ZipFile(path).read("config.json").decode()
    saved = json.loads(text)["compile_config"]["optimizer"]
    assert (saved["module"], saved["class_name"]) == ("keras.optimizers", "Adam")
    assert "horovod" not in text
    assert "smddp" not in text
    says_horovod(hvd_keras.load_model(path).optimizer, "horovod._keras", "Adam")
    assert type(keras.models.load_model(path).optimizer) is keras.optimizers.Adam


def private_names():
    assert not horovod.__version__ < "0.27.0"
    assert hvd.compression.Compression is hvd.Compression
    assert hvd.compression.NoneCompressor is hvd.Compression.none
    assert hvd.mpi_ops.Sum == hvd.Sum
    assert hvd.mpi_ops._basics.rank() == rank
    assert hvd._executing_eagerly()
    assert not tf.function(hvd._executing_eagerly)()
    assert float(hvd.mpi_ops._allreduce(tf.constant(1.0))) == size
    assert issubclass(hvd_keras.callbacks.LearningRateWarmupCallback, hvd_keras.callbacks.LearningRateScheduleCallback)
    from horovod._keras import callbacks as private_callbacks

    callback = hvd_keras.callbacks.LearningRateWarmupCallback(0.1)
    assert isinstance(callback, private_callbacks.LearningRateScheduleCallbackImpl)


def helpers_in_their_modules():
    """With Horovod's arguments, by their places."""
    import horovod.common
    from horovod._keras import create_distributed_optimizer
    from horovod.common.util import gpu_available
    from horovod.tensorflow import gradient_aggregation_eager, util

    assert (horovod.common.rank(), horovod.common.size()) == (rank, size)
    assert gpu_available("tensorflow", False) is False
    variables = [tf.Variable(1.0), tf.Variable(2.0)]
    assert all(a is b for a, b in zip(util.refs_to_vars(util.vars_to_refs(variables)), variables, strict=True))
    assert util._executing_eagerly()
    assert float(util._make_subgraph(lambda x: x + 1)(tf.constant(1.0))) == 2.0
    calls = []
    cached = util._cache(lambda x: calls.append(x) or len(calls))
    assert [cached(5), cached(5), cached(6)] == [1, 1, 2]
    with pytest.raises(NotImplementedError, match="backward_passes_per_step=N"):
        gradient_aggregation_eager.LocalGradientAggregationHelperEager(1, None, False, 0, False)
    optimizer = create_distributed_optimizer(
        keras, keras.optimizers.SGD(RATE), "mine", "", "", hvd.Compression.none, False, 1.0, hvd.Sum, 2, True, None
    )
    variable = tf.Variable(1.0)
    for grad in (1.0, 3.0):
        optimizer.apply_gradients([(tf.constant(grad + rank), variable)])
    np.testing.assert_allclose(variable.numpy(), 1.0 - RATE * sum(2.0 + one for one in range(size)), rtol=1e-6)


def counter_of_passes():
    optimizer = hvd_keras.DistributedOptimizer(keras.optimizers.SGD(RATE), backward_passes_per_step=3)
    helper, variable = optimizer._agg_helper, tf.Variable(1.0)
    assert (helper.backward_passes_per_step, helper.average_aggregated_gradients) == (3, False)
    seen = [int(helper.counter.numpy())]
    for _ in range(4):
        optimizer.apply_gradients([(tf.constant(1.0 + rank), variable)])
        seen.append(int(optimizer._agg_helper.counter.numpy()))
    assert seen == [0, 1, 2, 0, 1], seen
    np.testing.assert_allclose(variable.numpy(), 1.0 - RATE * 3 * (1 + (size - 1) / 2), rtol=1e-6)
    assert hvd_keras.DistributedOptimizer(keras.optimizers.SGD())._agg_helper is None


def real_signatures():
    for function, first, some in (
        (hvd.DistributedOptimizer, "optimizer", {"op", "compression", "backward_passes_per_step", "use_locking"}),
        (hvd_keras.DistributedOptimizer, "optimizer", {"average_aggregated_gradients", "process_set"}),
        (hvd.allreduce, "tensor", {"average", "op", "prescale_factor", "ignore_name_scope"}),
        (hvd.DistributedGradientTape, "gradtape", {"sparse_as_dense", "scale_local_gradients"}),
    ):
        parameters = inspect.signature(function).parameters
        assert next(iter(parameters)) == first
        assert some <= set(parameters), function


cases = {
    "variables of the launcher": variables_of_the_launcher,
    "names of wrapped optimizers": names_of_wrapped_optimizers,
    "files say Keras": files_say_keras,
    "private names": private_names,
    "real signatures": real_signatures,
    "helpers in their modules": helpers_in_their_modules,
    "counter of passes": counter_of_passes,
    "replaced in fit": lambda: replaced_in_fit(keras.optimizers.SGD(RATE)),
    "replaced in eager fit": lambda: replaced_in_fit(keras.optimizers.SGD(RATE), run_eagerly=True),
    "replaced, with momentum": lambda: replaced_in_fit(keras.optimizers.SGD(RATE, momentum=0.5), momentum=0.5),
    "replaced, loss scale": lambda: replaced_in_fit(
        keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(RATE), initial_scale=8.0)
    ),
    "replaced in a loop": replaced_in_a_loop,
    "replaced by another reduction": replaced_by_another_reduction,
    "replaced, with uneven data": replaced_with_uneven_data,
    "infinity in a local gradient": infinity_in_a_local_gradient,
    "compute gradients": compute_gradients,
    "replaced tape": replaced_tape,
    "replaced callback": replaced_callback,
    "changed defaults": changed_defaults,
    "grouped in a custom gradient": grouped_in_a_custom_gradient,
    "alltoall with splits": alltoall_with_splits,
    "join as a barrier": join_as_a_barrier,
}
for case, function in cases.items():
    recorder.call(case, function)
