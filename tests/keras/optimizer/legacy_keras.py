"""Keras 2 (TF_USE_LEGACY_KERAS=1) on all ranks: trains, saves, resumes; every rank writes down what it saw.

legacy_keras.py FOLDER
"""

import json
import sys
from pathlib import Path

import numpy as np
import tensorflow as tf
import tf_keras

import smddp_tf
import smddp_tf.keras as hvd
from smddp_tf._native import loader
from smddp_tf.keras._backend import optimizer_variables
from smddp_tf.keras.callbacks.learning_rate_schedule import scale_momentum

FOLDER = Path(sys.argv[1])
ROWS, STEPS = 4, 12
optimizers, legacy = tf.keras.optimizers, tf.keras.optimizers.legacy

OPTIMIZERS = {
    "sgd": lambda: optimizers.SGD(0.1, momentum=0.9),
    "adam clipnorm": lambda: optimizers.Adam(0.01, clipnorm=0.02),
    "legacy sgd": lambda: legacy.SGD(0.1, momentum=0.9),
    "legacy adam clipnorm": lambda: legacy.Adam(0.01, clipnorm=0.02),
    "loss scale": lambda: tf_keras.mixed_precision.LossScaleOptimizer(optimizers.SGD(0.1, momentum=0.9)),
}


def model_from(seed=7):
    tf.keras.utils.set_random_seed(seed)
    layers = [tf.keras.Input((6,)), tf.keras.layers.Dense(8, activation="tanh"), tf.keras.layers.Dense(3)]
    return tf.keras.Sequential(layers)


def flat(model):
    return np.concatenate([np.ravel(weight) for weight in model.get_weights()])


def distance(got, expected):
    return float(np.linalg.norm(got - expected) / np.linalg.norm(expected))


def data():
    x = np.random.default_rng(3).normal(size=(STEPS * hvd.size() * ROWS, 6)).astype("float32")
    return x, np.tanh(x[:, :3])


def mine(array):
    return array.reshape(STEPS, hvd.size(), ROWS, -1)[:, hvd.rank()].reshape(STEPS * ROWS, -1)


def fit(model, x, y, batch=ROWS, **more):
    return model.fit(x, y, batch_size=batch, shuffle=False, verbose=0, **more)


def loop(model, optimizer, way, x, y, batch):
    """A loop of one's own: the optimizer computes the gradients, or the script does."""
    variables = model.trainable_variables

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
        if way == "minimize":
            optimizer.minimize(loss, variables, tape=tape)
        elif way == "tape of ours":
            hvd_tape = smddp_tf.DistributedGradientTape(tape)
            optimizer.apply_gradients(zip(hvd_tape.gradient(loss, variables), variables))
        else:
            optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))

    for first in range(0, len(x), batch):
        step(tf.constant(x[first : first + batch]), tf.constant(y[first : first + batch]))
    return flat(model)


def reductions_in(action):
    before = loader.core().stats()["planned_buckets"]
    action()
    return loader.core().stats()["planned_buckets"] - before


def training(found):
    x, y = data()
    for name, make in OPTIMIZERS.items():
        whole, ours = model_from(), model_from()
        whole.compile(make(), "mse")
        fit(whole, x, y, ROWS * hvd.size())
        optimizer = make()
        wrapped = hvd.DistributedOptimizer(optimizer)
        ours.compile(wrapped, "mse")
        fit(ours, mine(x), mine(y))
        found["fit"][name] = [distance(flat(ours), flat(whole)), wrapped is optimizer, type(wrapped).__name__]
    for kind in ("sgd", "legacy adam clipnorm"):
        expected = loop(model_from(), OPTIMIZERS[kind](), "apply_gradients", x, y, ROWS * hvd.size())
        for way in ("minimize", "apply_gradients"):
            got = loop(model_from(), smddp_tf.DistributedOptimizer(OPTIMIZERS[kind]()), way, mine(x), mine(y), ROWS)
            found["loop"][f"{kind}, {way}"] = distance(got, expected)


def counting(found):
    """How often a step reduces, as so many buckets: with the tape, which reduces once, and with the optimizers."""
    x, y = mine(data()[0]), mine(data()[1])
    plain = model_from()
    found["once"] = reductions_in(lambda: loop(plain, optimizers.SGD(0.1), "tape of ours", x, y, ROWS))
    for kind in ("sgd", "legacy sgd", "loss scale"):
        model = model_from()
        model.compile(hvd.DistributedOptimizer(OPTIMIZERS[kind]()), "mse")
        found["reductions"][f"{kind}, fit"] = reductions_in(lambda model=model: fit(model, x, y))
        if kind != "loss scale":
            model, optimizer = model_from(), hvd.DistributedOptimizer(OPTIMIZERS[kind]())
            found["reductions"][f"{kind}, minimize"] = reductions_in(
                lambda model=model, optimizer=optimizer: loop(model, optimizer, "minimize", x, y, ROWS)
            )


def callbacks(found):
    x, y = mine(data()[0]), mine(data()[1])
    for kind in ("sgd", "legacy sgd"):
        model = model_from(seed=hvd.rank())
        model.compile(hvd.DistributedOptimizer(OPTIMIZERS[kind]()), "mse")
        best = hvd.callbacks.BestModelCheckpoint(monitor="loss", filepath=FOLDER / f"best-{kind}-{hvd.rank()}.keras")
        history = fit(
            model,
            x,
            y,
            epochs=3,
            callbacks=[
                hvd.callbacks.BroadcastGlobalVariablesCallback(0),
                hvd.callbacks.MetricAverageCallback(),
                hvd.callbacks.LearningRateWarmupCallback(0.1, warmup_epochs=2),
                hvd.callbacks.LearningRateScheduleCallback(0.1, multiplier=lambda epoch: 0.5, start_epoch=2),
                best,
            ],
        )
        found["callbacks"][kind] = {
            "loss": history.history["loss"],
            "lr": [float(rate) for rate in history.history["lr"]],
            "weights": flat(model).astype("float64").tolist(),
            "momentum": momentum_times(model, 2.0),
            "saved": sorted(file.name for file in FOLDER.glob(f"best-{kind}-{hvd.rank()}*")),
        }


def momentum_times(model, factor):
    """By how much the momentum of the first kernel grows when the learning rate does."""
    kernel = model.trainable_variables[0]
    momentum = next(v for v in optimizer_variables(model.optimizer) if v.shape == kernel.shape)
    before = momentum.numpy()
    scale_momentum(model.optimizer, 0.1, 0.1 * factor)
    return float(np.mean(momentum.numpy() / before))


def saving(found):
    """Half of the training, through a file, and the rest: the same bits as without the file."""
    x, y = mine(data()[0]), mine(data()[1])
    half = len(x) // 2
    for name, ending in (("sgd", "keras"), ("adam clipnorm", "h5"), ("legacy sgd", "h5")):
        whole, model = model_from(), model_from()
        for each in (whole, model):
            each.compile(hvd.DistributedOptimizer(OPTIMIZERS[name]()), "mse")
            fit(each, x[:half], y[:half])
        path = FOLDER / f"{name}-{hvd.rank()}.{ending}"
        model.save(path)
        resumed = hvd.load_model(path)
        fit(whole, x[half:], y[half:])
        fit(resumed, x[half:], y[half:])
        found["resumed"][name] = bool(np.array_equal(flat(whole), flat(resumed)))


def schedules(found):
    """Training with a warm-up against one process on the whole batch; the rates of the schedule that a file holds."""
    x, y = data()
    decay = optimizers.schedules.ExponentialDecay(0.1, STEPS, 0.5)
    for kind, make in (("sgd", optimizers.SGD), ("legacy sgd", legacy.SGD)):
        whole, ours = model_from(), model_from()
        whole.compile(make(hvd.schedules.Warmup(decay, warmup_steps=4)), "mse")
        fit(whole, x, y, ROWS * hvd.size())
        ours.compile(hvd.DistributedOptimizer(make(hvd.schedules.Warmup(decay, warmup_steps=4))), "mse")
        fit(ours, mine(x), mine(y))
        path = FOLDER / f"warmup-{kind}-{hvd.rank()}.{'keras' if kind == 'sgd' else 'h5'}"
        ours.save(path)
        loaded = hvd.load_model(path).optimizer.get_config()["learning_rate"]["config"]
        rates = [float(hvd.schedules.Warmup.from_config(loaded)(step)) for step in (0, 3, STEPS)]
        found["schedules"][kind] = [distance(flat(ours), flat(whole)), rates]


def several_passes(found):
    """Two calls for one update, with a variable that stays local; what each call has changed."""
    for kind, make in (("sgd", optimizers.SGD), ("legacy sgd", legacy.SGD)):
        shared, local = tf.Variable([0.0]), tf.Variable([0.0] * (1 + hvd.rank()))
        optimizer = hvd.DistributedOptimizer(make(1.0), backward_passes_per_step=2)
        optimizer.register_local_var(local)

        @tf.function
        def step(value, shared=shared, local=local, optimizer=optimizer):
            optimizer.apply_gradients([(value[None], shared), (tf.fill(local.shape, value), local)])

        values = []
        for number in range(4):
            step(tf.constant(hvd.rank() + 1.0 + 10 * number))
            values.append([float(shared[0]), float(local[-1]), int(optimizer.iterations)])
        found["passes"][kind] = values


def computed(found):
    """Gradients rank * 4 + 1, of one rank 3, from the optimizer's own methods, clipped to 1, and applied."""
    scale = tf_keras.mixed_precision.LossScaleOptimizer
    kinds = {
        "sgd": lambda: optimizers.SGD(1.0),
        "legacy sgd": lambda: legacy.SGD(1.0),
        "loss scale": lambda: scale(optimizers.SGD(1.0)),
        "legacy loss scale": lambda: scale(legacy.SGD(1.0)),
    }
    for kind, make in kinds.items():
        skip = {"experimental_aggregate_gradients": False} if "legacy" in kind else {"skip_gradients_aggregation": True}
        for name in ("compute_gradients", "_compute_gradients"):
            for passes in (1, 2) if "scale" not in kind else (1,):
                for arguments in ({}, skip):
                    for eagerly in (True, False):
                        optimizer = hvd.DistributedOptimizer(make(), backward_passes_per_step=passes)
                        if not hasattr(optimizer, name):
                            continue
                        shared, local, unused = tf.Variable([0.0]), tf.Variable([0.0]), tf.Variable([0.0])
                        inner = getattr(optimizer, "inner_optimizer", optimizer)
                        inner.register_local_var(local)

                        def step(
                            shared=shared, local=local, unused=unused, optimizer=optimizer, name=name, more=arguments
                        ):
                            def loss():
                                return (4.0 * hvd.rank() - 1.0) * shared + (hvd.rank() + 1.0) * local

                            pairs = getattr(optimizer, name)(loss, [shared, local, unused])
                            pairs = [(tf.clip_by_value(g, -1.0, 1.0), v) for g, v in pairs if g is not None]
                            optimizer.apply_gradients(pairs, **more)

                        step = step if eagerly else tf.function(step)
                        for _ in range(2 * passes):
                            step()
                        how = f"{kind}, {name}, {passes}, {bool(arguments)}, {eagerly}"
                        found["computed"][how] = [
                            float(shared[0]),
                            float(local[0]),
                            int(optimizer.iterations) - 2 * passes,
                        ]


def given(found):
    """The optimizer that was wrapped, after two steps of its own, and the one that reduces."""
    kinds = {
        "sgd": lambda: optimizers.SGD(1.0, momentum=0.5),
        "legacy sgd": lambda: legacy.SGD(1.0, momentum=0.5),
        "legacy function": lambda: legacy.SGD(lambda: 1.0, momentum=0.5),
        "adam": lambda: optimizers.Adam(0.1),
        "legacy adam": lambda: legacy.Adam(0.1),
        "loss scale": lambda: tf_keras.mixed_precision.LossScaleOptimizer(
            optimizers.SGD(1.0, momentum=0.5), dynamic=False, initial_scale=1.0
        ),
    }
    for kind, make in kinds.items():
        whole, plain = make(), make()
        one, other = tf.Variable([0.0]), tf.Variable([0.0])
        for optimizer, variable in ((whole, one), (plain, other)):
            for _ in range(2):
                optimizer.apply_gradients([(tf.constant([2.0]), variable)])
        wrapped = hvd.DistributedOptimizer(plain)
        before = [value.numpy().tolist() for value in optimizer_variables(plain)]
        wrapped.apply_gradients([(tf.constant([hvd.rank() + 1.0]), other)])
        whole.apply_gradients([(tf.constant([(hvd.size() + 1) / 2]), one)])
        kept = before == [value.numpy().tolist() for value in optimizer_variables(plain)]
        plain.apply_gradients([(tf.constant([hvd.rank() + 1.0]), other)])
        found["given"][kind] = [float(one[0]), float(other[0]), kept, int(wrapped.iterations), int(plain.iterations)]
        path = tf.train.Checkpoint(optimizer=wrapped).save(str(FOLDER / f"given-{hvd.rank()}-{kind}"))
        saved = sorted(tf.train.load_checkpoint(path).get_variable_to_shape_map())
        path = tf.train.Checkpoint(optimizer=whole).save(str(FOLDER / f"whole-{hvd.rank()}-{kind}"))
        kept = kept and saved == sorted(tf.train.load_checkpoint(path).get_variable_to_shape_map())
        found["given"][kind][2] = kept
        wrapped.learning_rate = 0.25
        found["given"][kind].append("function" in kind or float(plain.learning_rate) != 0.25)


def made_anew(found):
    """What optimizers made from the configuration of one that sums apply; Keras 2 itself copies and pickles none."""
    for kind, make in (("sgd", optimizers.SGD), ("legacy sgd", legacy.SGD)):
        wrapped = hvd.DistributedOptimizer(make(1.0), op=hvd.Sum)
        model = model_from()
        model.compile(hvd.DistributedOptimizer(make(1.0), op=hvd.Sum), "mse")
        clone = tf.keras.Sequential([tf.keras.layers.Dense(1)])
        clone.compile_from_config(model.get_compile_config())
        anew = {
            "from_config": type(wrapped).from_config(wrapped.get_config()),
            "deserialize": optimizers.deserialize(optimizers.serialize(wrapped)),
            "compile_from_config": clone.optimizer,
        }
        for way, optimizer in anew.items():
            variable = tf.Variable([0.0])
            optimizer.apply_gradients([(tf.constant([hvd.rank() + 1.0]), variable)])
            found["anew"][f"{kind}, {way}"] = float(variable[0])


def sync_batch_normalization(found):
    """Training, and the moving statistics, against one process on the whole batch; images, and channels of two axes."""
    for name, axis in (("one axis", -1), ("two axes", [1, 3])):
        x = np.random.default_rng(5).normal(3.0, 2.0, (STEPS * hvd.size() * ROWS, 3, 2, 4)).astype("float32")
        x += np.arange(len(x), dtype="float32").reshape(-1, 1, 1, 1) // ROWS % hvd.size()  # other means on each rank
        y = np.tanh(x[:, 0, 0, :1] - x[:, 1, 1, 1:2])
        ends = []
        for layer in (tf.keras.layers.BatchNormalization, smddp_tf.SyncBatchNormalization):
            tf.keras.utils.set_random_seed(7)
            normal = layer(axis=axis, momentum=0.8, fused=False)  # the fused one moves another variance: n / (n - 1)
            model = tf.keras.Sequential([tf.keras.Input((3, 2, 4)), normal, tf.keras.layers.Flatten()])
            model.add(tf.keras.layers.Dense(1))
            ours = layer is smddp_tf.SyncBatchNormalization
            model.compile(hvd.DistributedOptimizer(optimizers.SGD(0.01)) if ours else optimizers.SGD(0.01), "mse")
            if ours:
                parts = (a.reshape(STEPS, hvd.size(), ROWS, *a.shape[1:])[:, hvd.rank()] for a in (x, y))
                fit(model, *(part.reshape(STEPS * ROWS, *part.shape[2:]) for part in parts))
                model.save(FOLDER / f"normal-{name}-{hvd.rank()}.keras")
            else:
                fit(model, x, y, ROWS * hvd.size())
            ends.append(flat(model))
        found["normal"][name] = distance(*ends[::-1])


def refusals(found):
    import keras  # Keras 3

    def note(name, action):
        try:
            action()
            found["refused"][name] = ""
        except Exception as error:
            found["refused"][name] = f"{type(error).__name__}: {error}"

    wrapped = hvd.DistributedOptimizer(optimizers.SGD(0.1), op=hvd.Sum)
    several = hvd.DistributedOptimizer(optimizers.SGD(0.1), backward_passes_per_step=2, op=hvd.Sum)
    v1 = tf.compat.v1.train.GradientDescentOptimizer(0.1)
    note("wrapped", lambda: hvd.DistributedOptimizer(wrapped))
    note("scaled", lambda: hvd.DistributedOptimizer(tf_keras.mixed_precision.LossScaleOptimizer(wrapped)))
    note("keras 3", lambda: hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)))
    note("v1", lambda: hvd.DistributedOptimizer(v1))
    note("name", lambda: hvd.DistributedOptimizer("sgd"))
    note("class", lambda: hvd.DistributedOptimizer(optimizers.SGD))
    note("evaluate", lambda: hvd.evaluate(model_from(), np.ones((2, 6)), np.ones((2, 3))))
    note("weighted", lambda: hvd.callbacks.MetricAverageCallback(weighted=True))
    note("sums of metrics", lambda: hvd.callbacks.MetricSumCallback())
    note("uneven", lambda: hvd.callbacks.UnevenBatchesCallback("join"))
    for name, make, argument in (
        ("nothing reduced", optimizers.SGD, {"skip_gradients_aggregation": True}),
        ("nothing reduced, legacy", legacy.SGD, {"experimental_aggregate_gradients": False}),
    ):
        kernel, saved = tf.Variable([0.0]), make(1.0, momentum=0.5)
        saved.apply_gradients([(tf.constant([1.0]), kernel)])
        path = tf.train.Checkpoint(optimizer=saved).save(str(FOLDER / f"{make.__module__}-{hvd.rank()}"))
        unread = make(1.0, momentum=0.5)
        tf.train.Checkpoint(optimizer=unread).restore(path)
        how = name.replace("nothing reduced", "unread checkpoint")
        note(how, lambda unread=unread: hvd.DistributedOptimizer(unread))
        alone, pair = hvd.DistributedOptimizer(make(1.0)), (tf.constant([1.0]), tf.Variable([0.0]))
        note(name, lambda alone=alone, pair=pair, argument=argument: alone.apply_gradients([pair], **argument))
        by_hand = [(hvd.allreduce(tf.constant([1.0 + hvd.rank()]), name="by hand"), pair[1])]
        alone.apply_gradients(by_hand, **argument)
        found["refused"][f"{name}, but by hand"] = str(float(pair[1][0]))
    scaled = tf_keras.mixed_precision.LossScaleOptimizer(optimizers.SGD(0.1))
    note("passes", lambda: hvd.DistributedOptimizer(scaled, backward_passes_per_step=2))
    for name, optimizer in (("twice", wrapped), ("twice, passes", several)):
        note(name, lambda optimizer=optimizer: loop(model_from(), optimizer, "tape of ours", *map(mine, data()), ROWS))


seen: dict = {"keras 3 imported": "keras.src.models" in sys.modules}
seen.update(
    {
        name: {}
        for name in (
            "fit",
            "loop",
            "reductions",
            "callbacks",
            "resumed",
            "passes",
            "anew",
            "normal",
            "refused",
            "computed",
            "given",
        )
    }
)
seen["schedules"] = {}
hvd.init()
for part in (
    training,
    counting,
    callbacks,
    saving,
    schedules,
    several_passes,
    made_anew,
    computed,
    given,
    sync_batch_normalization,
):
    part(seen)
refusals(seen)
(FOLDER / f"rank-{hvd.rank()}.json").write_text(json.dumps(seen))
