"""Uses Horovod's API as public programs do that replace parts of it, under the alias, with Keras 3.

mpirun -np 2 python -m smddp_tf.aliases horovod horovod_clients.py FOLDER

The cases that train are in horovod_tables.py.
"""

import inspect
import json
import os
import sys
import zipfile

import horovod
import horovod.tensorflow as hvd
import horovod.tensorflow.keras as hvd_keras
import keras
import numpy as np
import pytest
import tensorflow as tf
from horovod.common.process_sets import ProcessSet

from tests.support.recorder import Recorder

with pytest.raises(ValueError, match="has not been initialized"):
    hvd.rank()
of_launcher = {name: value for name, value in os.environ.items() if name.startswith("HOROVOD_")}
alone = [ProcessSet([one]) for one in range(2)]
hvd.init(process_sets=alone)

from tests.compat.horovod import horovod_tables  # noqa: E402  (needs the number of ranks)
from tests.compat.horovod.horovod_tables import RATE, compare, fit, rank, size  # noqa: E402

recorder = Recorder(sys.argv[1], rank)


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
    assert list(map(id, util.refs_to_vars(util.vars_to_refs(variables)))) == list(map(id, variables))
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
    "changed defaults": changed_defaults,
    "grouped in a custom gradient": grouped_in_a_custom_gradient,
    "alltoall with splits": alltoall_with_splits,
    "join as a barrier": join_as_a_barrier,
}
for case, function in {**cases, **horovod_tables.cases}.items():
    recorder.call(case, function)
