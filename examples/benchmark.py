"""Samples per second of training steps on synthetic data, and the efficiency against one rank.

    smddprun -np 4 python examples/benchmark.py --model resnet50 --batch-size 32 --baseline
    python examples/benchmark.py --model encoder

Every rank trains on batches of its own. With --baseline rank 0 trains alone first, without reducing anything, while the
others wait; the efficiency is the samples per second of a rank in the job, as a share of that. Ranks that share cores
have fewer of them than rank 0 had alone, and this counts too.
"""

import argparse
import contextlib
import time

import keras
import numpy as np
import tensorflow as tf

import smddp_tf as hvd


def parse_arguments():
    parser = argparse.ArgumentParser(description="Times training steps on synthetic data.")
    parser.add_argument("--model", choices=("resnet50", "encoder", "mlp"), default="resnet50")
    parser.add_argument("--batch-size", type=int, default=32, help="of each rank")
    parser.add_argument("--steps", type=int, default=50, help="that are timed")
    parser.add_argument("--warmup", type=int, default=5, help="steps before, which trace and fill caches")
    parser.add_argument("--image-size", type=int, default=224, help="of resnet50")
    parser.add_argument("--length", type=int, default=128, help="tokens of a sample of encoder")
    parser.add_argument("--width", type=int, default=256, help="of encoder, and a fourth of that of mlp")
    parser.add_argument("--baseline", action="store_true", help="time rank 0 alone first")
    return parser.parse_args()


def resnet50(arguments):
    """25.6 M weights."""
    shape = (arguments.image_size, arguments.image_size, 3)
    return keras.applications.ResNet50(weights=None, input_shape=shape, classifier_activation=None)


def encoder(arguments):
    """Four transformer blocks on embedded tokens, a label for each sample."""
    inputs = keras.Input((arguments.length,), dtype="int32")
    x = keras.layers.Embedding(1000, arguments.width)(inputs)
    for _ in range(4):
        attended = keras.layers.MultiHeadAttention(4, arguments.width // 4)(x, x)
        x = keras.layers.LayerNormalization()(x + attended)
        hidden = keras.layers.Dense(4 * arguments.width, activation="gelu")(x)
        x = keras.layers.LayerNormalization()(x + keras.layers.Dense(arguments.width)(hidden))
    return keras.Model(inputs, keras.layers.Dense(1000)(keras.layers.GlobalAveragePooling1D()(x)))


def mlp(arguments):
    """Seven dense layers."""
    width = 4 * arguments.width
    hidden = [keras.layers.Dense(width, activation="relu") for _ in range(6)]
    return keras.Sequential([keras.Input((width,)), *hidden, keras.layers.Dense(1000)])


MODELS = {"resnet50": resnet50, "encoder": encoder, "mlp": mlp}


def synthetic_batch(model, batch_size):
    """Of this rank: whole numbers below 1000, for tokens and labels too."""
    random = np.random.default_rng(hvd.rank())
    shape = (batch_size, *model.input_shape[1:])
    x = random.integers(0, 1000, shape) if model.inputs[0].dtype == "int32" else random.normal(size=shape)
    return tf.constant(x, model.inputs[0].dtype), tf.constant(random.integers(0, 1000, batch_size))


def seconds_of_steps(arguments, alone):
    """Trains from the same weights on all ranks; returns the seconds of each timed step."""
    keras.utils.set_random_seed(1)
    model = MODELS[arguments.model](arguments)
    optimizer = keras.optimizers.SGD(0.001, momentum=0.9)
    optimizer = optimizer if alone else hvd.DistributedOptimizer(optimizer)
    optimizer.build(model.trainable_variables)
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function
    def train_step(x, y):
        with tf.GradientTape() as tape:
            loss = loss_of(y, model(x, training=True))
        optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
        return loss

    x, y = synthetic_batch(model, arguments.batch_size)
    seconds = []
    for _ in range(arguments.warmup + arguments.steps):
        began = time.perf_counter()
        with contextlib.nullcontext() if alone else hvd.monitor.step(samples=arguments.batch_size):
            train_step(x, y).numpy()
        seconds.append(time.perf_counter() - began)
    return np.array(seconds[arguments.warmup :])


def main():
    arguments = parse_arguments()
    hvd.init()
    if gpus := tf.config.list_physical_devices("GPU"):
        tf.config.set_visible_devices(gpus[hvd.local_rank() % len(gpus)], "GPU")
    alone = None
    if arguments.baseline:
        alone = np.median(seconds_of_steps(arguments, alone=True)) if hvd.rank() == 0 else None
        hvd.barrier()
    seconds = np.array(hvd.allgather_object(seconds_of_steps(arguments, alone=False)))
    if hvd.rank() != 0:
        return
    print(hvd.summary())
    unit = "images" if arguments.model == "resnet50" else "samples"
    rates = hvd.size() * arguments.batch_size / seconds.max(axis=0)  # a step has ended when its slowest rank has
    low, middle, high = np.percentile(rates, [10, 50, 90])
    print(f"{arguments.model}, {hvd.size()} rank(s) of {arguments.batch_size}: {middle:.1f} {unit}/s")
    print(f"of {arguments.steps} steps: 10 % below {low:.1f}, 10 % above {high:.1f} {unit}/s")
    if alone is not None:
        efficiency = middle / (hvd.size() * arguments.batch_size / alone)
        print(f"one rank alone: {arguments.batch_size / alone:.1f} {unit}/s; efficiency {efficiency:.1%}")


if __name__ == "__main__":
    main()
