"""Peak memory of training, before and after: activations computed again (`keras.remat`), bfloat16, shared slots.

    smddprun -np 2 python examples/08_memory.py
    smddprun -np 2 python examples/08_memory.py --remat
    smddprun -np 2 python examples/08_memory.py --remat --bf16 --partition-state node

A small transformer reads handwritten digits pixel by pixel, always from the same start and with the same data. Each run
says by how much a process grew at its peak. docs/memory.md says what to try in which order.
"""

import argparse
import time
from pathlib import Path

import digits
import keras

import smddp_tf.keras as hvd

WIDTH, HEADS, BLOCKS, CLASSES = 128, 4, 4, 10


class Block(keras.layers.Layer):
    """Attention and a network for each position. With `remat` only its input is kept for the backward pass."""

    def __init__(self, remat):
        super().__init__()
        self.remat = remat
        self.norms = [keras.layers.LayerNormalization() for _ in range(2)]
        self.attention = keras.layers.MultiHeadAttention(HEADS, WIDTH // HEADS)
        self.up = keras.layers.Dense(4 * WIDTH, activation="gelu")
        self.down = keras.layers.Dense(WIDTH)

    def build(self, shape):
        for norm in self.norms:
            norm.build(shape)
        self.attention.build(shape, shape)
        self.up.build(shape)
        self.down.build((*shape[:-1], 4 * WIDTH))
        self.built = True

    def compute(self, x):
        y = self.norms[0](x)
        x = x + self.attention(y, y)
        return x + self.down(self.up(self.norms[1](x)))

    def call(self, x):
        # (1) Positional arguments only, and no dropout inside: it would draw a second mask in the backward pass.
        return keras.remat(self.compute)(x) if self.remat else self.compute(x)

    def compute_output_shape(self, shape):
        return shape


def build_model(remat):
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Reshape((64, 1)),
            keras.layers.Dense(WIDTH),
            *(Block(remat) for _ in range(BLOCKS)),
            keras.layers.LayerNormalization(),
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(CLASSES, dtype="float32"),
        ]
    )


def resident_bytes(which):
    """This process's memory now ("VmRSS") or at its peak ("VmHWM"), in bytes."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(which))
    return int(line.split()[1]) * 1024


def main():
    parser = argparse.ArgumentParser(description="Prints the peak memory of training with and without savings.")
    parser.add_argument("--remat", action="store_true", help="blocks keep their input only")
    parser.add_argument("--bf16", action="store_true", help="activations in bfloat16")
    parser.add_argument(
        "--partition-state", "--shard", help="who shares the optimizer's slots: node, world, or a number of ranks"
    )
    parser.add_argument("--batch-size", type=int, default=128, help="of each rank")
    parser.add_argument("--steps", type=int, default=6)
    arguments = parser.parse_args()

    hvd.init()
    digits.use_one_gpu(hvd.local_rank())
    given = arguments.partition_state
    partition_state = int(given) if (given or "").isdigit() else given
    if arguments.bf16:
        keras.config.set_dtype_policy("mixed_bfloat16")
    keras.utils.set_random_seed(1)
    (x, y), _ = digits.load()
    data = digits.training_batches(x, y, arguments.batch_size).repeat().take(arguments.steps)
    before = resident_bytes("VmRSS")

    model = build_model(arguments.remat)
    optimizer = hvd.DistributedOptimizer(keras.optimizers.AdamW(1e-3), partition_state=partition_state)  # (2)
    model.compile(optimizer, loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(data.take(1), verbose=0)  # builds and traces
    start = time.perf_counter()
    history = model.fit(data, verbose=0)
    seconds = (time.perf_counter() - start) / arguments.steps

    grown = (resident_bytes("VmHWM") - before) / 1e6
    if hvd.rank() == 0:
        loss = history.history["loss"][-1]
        print(f"peak memory: {grown:.0f} MB more than before training; {seconds:.2f} s a step; loss {loss:.5f}")
    digits.check_equal_weights(model)


if __name__ == "__main__":
    main()
