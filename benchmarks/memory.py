"""What `hvd.memory` says, beside the resident memory of training steps.

`python -m benchmarks.memory [--ranks 1 2] [--optimizers SGD AdamW]` prints a table; it starts the ranks itself, anew
for each row. Each row is measured twice: where the C library gives large tensors back as soon as they are freed
(MALLOC_MMAP_THRESHOLD_=65536), so that resident memory is what is alive, and as it is by default. The exit code says
whether the first is within 10 % of the prediction everywhere.

Gradients are clipped by their global norm, so that all of them are alive at once, as the prediction has it. With
`--overlap` they are not: then each is applied as soon as it is reduced.

Measured is the growth of the largest resident memory of a rank from before the weights exist until after the steps,
and its shared memory. A narrow model of as many layers has trained before, so graphs and threads are there.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.ranks import answers_of_ranks, process_bytes

__all__ = ["main"]

WIDTH, NARROW, LAYERS, BATCH = 2048, 32, 24, 64
STEPS = 4
LIMIT = 0.1
RUN_SECONDS = 600
ALLOCATORS = {"alive": "65536", "default": ""}  # MALLOC_MMAP_THRESHOLD_


def layers(width: int) -> Any:
    """A model of dense layers; 100.7 million weights with a width of 2048."""
    import keras

    keras.utils.set_random_seed(1)
    x = inputs = keras.Input((width,))
    for _ in range(LAYERS):
        x = keras.layers.Dense(width, activation="relu")(x)
    return keras.Model(inputs, keras.layers.Dense(1)(x))


def train(width: int, optimizer: str, shard: int, overlap: bool, weights: bool) -> tuple[Any, Any]:
    """Some steps of `fit`; returns the model and its optimizer."""
    import keras

    import smddp_tf.keras as hvd

    with hvd.partition_weights(shard) if weights else contextlib.nullcontext():
        model = layers(width)
    plain = getattr(keras.optimizers, optimizer)(1e-3, global_clipnorm=None if overlap else 1.0)
    parts = shard if shard > 1 and not weights else None
    model.compile(hvd.DistributedOptimizer(plain, name=f"width {width}", partition_state=parts), "mse")
    x = np.random.default_rng(hvd.rank()).normal(size=(BATCH * STEPS, width)).astype("float32")
    model.fit(x, x[:, :1], BATCH, verbose=0)
    return model, model.optimizer


def work(folder: Path, optimizer: str, shard: int, overlap: bool, width: int, weights: bool) -> None:
    """The program of one rank."""
    import smddp_tf.keras as hvd

    os.environ["SMDDP_SHARED_TENSORS"] = "0"  # what a rank has read of the others would count in its resident memory
    hvd.init()
    train(NARROW, optimizer, shard, overlap, weights)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # VmHWM begins anew
    before = process_bytes("RssAnon")
    model, used = train(width, optimizer, shard, overlap, weights)
    largest = process_bytes("VmHWM") - process_bytes("RssFile") - process_bytes("RssShmem")
    measured = largest - before + process_bytes("RssShmem")
    full = layers(width) if weights else model
    row = hvd.memory(full, used, partition_state=shard, batch=BATCH, weights=weights).rows[0]
    state = row.weights + row.slots + row.parts
    answer = {"predicted": row.total, "state": state, "parts": row.parts, "measured": measured}
    (folder / f"{hvd.rank()}.json").write_text(json.dumps(answer), encoding="utf-8")
    hvd.shutdown()


def measure(
    ranks: int, optimizer: str, shard: int, allocator: str, overlap: bool, weights: bool
) -> list[dict[str, Any]]:
    """The answers of all ranks."""
    os.environ.pop("MALLOC_MMAP_THRESHOLD_", None)
    if ALLOCATORS[allocator]:
        os.environ["MALLOC_MMAP_THRESHOLD_"] = ALLOCATORS[allocator]
    arguments = ("--folder", "{folder}", "--shard", str(shard), "--optimizers", optimizer)
    arguments += (*(("--overlap",) if overlap else ()), *(("--weights",) if weights else ()))
    return answers_of_ranks("benchmarks.memory", ranks, RUN_SECONDS, *arguments)


def main() -> None:
    """Starts the ranks and shows what they measured; is itself the program of a rank."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--optimizers", nargs="+", default=["SGD", "AdamW"])
    parser.add_argument("--allocators", nargs="+", default=list(ALLOCATORS), choices=list(ALLOCATORS))
    parser.add_argument("--overlap", action="store_true")
    parser.add_argument("--weights", action="store_true")
    parser.add_argument("--shard", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--width", type=int, default=WIDTH, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.folder:
        how = (arguments.optimizers[0], arguments.shard, arguments.overlap, arguments.width, arguments.weights)
        work(arguments.folder, *how)
        return
    heads = ("optimizer", "ranks", "shard", "predicted", "allocator", "measured", "ratio")
    print("".join(f"{head:>12}" for head in heads))
    worst = 0.0
    for optimizer in arguments.optimizers:
        for ranks, shard in [(each, shard) for each in arguments.ranks for shard in sorted({1, each})]:
            for allocator in arguments.allocators:
                answers = measure(ranks, optimizer, shard, allocator, arguments.overlap, arguments.weights)
                predicted = max(answer["predicted"] for answer in answers)
                measured = max(answer["measured"] for answer in answers)
                cells = (optimizer, ranks, shard, f"{predicted / 1e6:.0f} MB", allocator, f"{measured / 1e6:.0f} MB")
                print("".join(f"{cell:>12}" for cell in cells) + f"{measured / predicted:>12.2f}", flush=True)
                worst = max(worst, abs(measured / predicted - 1) if allocator == "alive" else 0)
    raise SystemExit(worst > LIMIT)


if __name__ == "__main__":
    main()
