"""Training steps of a transformer with AdamW: the optimizer's state on every rank, beside its parts.

`python -m benchmarks.sharding [--ranks 4] [--nodes 2] [--lab 1000]` prints a table; it starts its ranks itself, anew
for each way, as resident memory is that of a process. `--nodes` pretends that the ranks are spread over so many nodes;
with `--lab` they are network namespaces with links of so many Mbit/s (root and TUN). The weights of all ways must be
the same, bit by bit. Gradients of the embedding travel dense in all of them, as `partition_state` makes them travel.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.lab import Lab, why_not
from benchmarks.measure import duration_text
from benchmarks.ranks import answers_of_ranks, process_bytes

__all__ = ["bytes_of", "main", "measured", "pretend", "step_of", "transformer"]

VOCABULARY, WIDTH, LAYERS, TOKENS, BATCH = 8_000, 512, 12, 16, 2
STEPS = 12  # of which the first three are not timed
RUN_SECONDS = 900


def transformer(layers: int = LAYERS, width: int = WIDTH) -> Any:
    """12 layers of 512 are 42 million weights, 32 of 1024 are 413 million."""
    import keras

    keras.utils.set_random_seed(1)
    tokens = keras.Input((TOKENS,), dtype="int32")
    x = keras.layers.Embedding(VOCABULARY, width)(tokens)
    for _ in range(layers):
        normed = keras.layers.LayerNormalization()(x)
        x = x + keras.layers.MultiHeadAttention(8, width // 8)(normed, normed, use_causal_mask=True)
        hidden = keras.layers.Dense(4 * width, activation="gelu")(keras.layers.LayerNormalization()(x))
        x = x + keras.layers.Dense(width)(hidden)
    return keras.Model(tokens, keras.layers.Dense(1)(keras.layers.LayerNormalization()(x)))


def bytes_of(variables: Any) -> int:
    """What the values take."""
    return sum(int(np.prod(variable.shape)) * np.dtype(variable.dtype).itemsize for variable in variables)


def step_of(model: Any, optimizer: Any) -> Callable[[], Any]:
    """A training step with this rank's batch, always the same; returns the loss."""
    import tensorflow as tf

    import smddp_tf.keras as hvd

    random = np.random.default_rng(hvd.rank())
    batch = tf.constant(random.integers(0, VOCABULARY, (BATCH, TOKENS)), tf.int32)

    @tf.function
    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(batch) - tf.cast(batch[..., tf.newaxis], tf.float32) / VOCABULARY))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    return step


def work(folder: Path, shard: str | None) -> None:
    """The program of one rank."""
    import keras
    import tensorflow as tf

    import smddp_tf.keras as hvd
    from smddp_tf._native import loader

    os.environ["SMDDP_SHARED_TENSORS"] = "0"  # or memory of tensors is not RssAnon
    hvd.init()
    model = transformer()
    optimizer = hvd.DistributedOptimizer(keras.optimizers.AdamW(1e-3), partition_state=shard, sparse_as_dense=True)
    before = process_bytes("RssAnon")
    optimizer.build(model.trainable_variables)
    state = process_bytes("RssAnon") - before
    step, seconds = step_of(model, optimizer), []
    for number in range(STEPS):
        hvd.allreduce(tf.zeros([]), name="bench.sharding")
        if number == 3:
            sent = loader.core().stats()["rail_bytes_sent"]
        begin = time.perf_counter()
        float(step())
        seconds.append(time.perf_counter() - begin)
    sent = (loader.core().stats()["rail_bytes_sent"] - sent) / (STEPS - 3)
    digest = hashlib.sha256(b"".join(weight.tobytes() for weight in model.get_weights())).hexdigest()
    answer = {
        "weights": bytes_of(model.trainable_variables),
        "slots": bytes_of(optimizer.variables[2:]),
        "resident": state,
        "after": process_bytes("RssAnon") - before,
        "sent": sent,
        "seconds": seconds[3:],
        "digest": digest,
    }
    (folder / f"{hvd.rank()}.json").write_text(json.dumps(answer), encoding="utf-8")
    hvd.shutdown()


def show(ways: dict[str, list[dict[str, Any]]], nodes: int) -> int:
    """Prints the table; returns how many ways have other weights than the first."""
    first = ways["none"]
    weights = first[0]["weights"]
    print(f"{weights / 4e6:.1f} M weights ({weights / 1e6:.0f} MB), AdamW, {len(first)} ranks on {nodes} node(s)")
    print("slots, resident: MB of the rank with most; resident when the state is made / after the steps")
    heads = ("shard", "slots", "resident", "step", "of none", "sent/node", "2(N-1)/N B", "same weights")
    print("".join(f"{head:>16}" for head in heads))
    least = 2 * (nodes - 1) / nodes * weights
    for shard, ranks in ways.items():
        step = statistics.median(max(times) for times in zip(*(rank["seconds"] for rank in ranks)))
        if shard == "none":
            alone = step
        sent = sum(rank["sent"] for rank in ranks) / nodes
        cells = [
            shard,
            f"{max(rank['slots'] for rank in ranks) / 1e6:.1f}",
            f"{max(rank['resident'] for rank in ranks) / 1e6:.0f}/{max(rank['after'] for rank in ranks) / 1e6:.0f}",
            duration_text(step),
            f"{step / alone:.2f}",
            f"{sent / 1e6:.1f}",
            f"{least / 1e6:.1f}",
            "yes" if {rank["digest"] for rank in ranks} == {first[0]["digest"]} else "NO",
        ]
        print("".join(f"{cell:>16}" for cell in cells))
    return sum(rank["digest"] != first[0]["digest"] for ranks in ways.values() for rank in ranks)


def measured(module: str, ranks: int, nodes: int, rate: int, seconds: float, *arguments: str) -> list[dict[str, Any]]:
    """What the ranks of a benchmark answer, by rank: on so many pretended nodes, or with a rate on nodes of the lab."""
    passed = (f"--ranks={ranks}", f"--nodes={1 if rate else nodes}", "--folder", "{folder}", *arguments)
    if not rate:
        return answers_of_ranks(module, ranks, seconds, *passed)
    with Lab(nodes, rate) as lab:
        return lab.run(ranks // nodes, "", module, *passed)


def pretend(nodes: int, ranks: int) -> None:
    """Makes this process, one of so many ranks, be on one of so many nodes."""
    if nodes > 1:
        rank = int(os.environ.get("OMPI_COMM_WORLD_RANK", "0"))
        os.environ["SMDDP_HOST_ID"] = f"pretended-{rank * nodes // ranks}"


def main() -> None:
    """Starts the ranks and shows what they measured; is itself the program of a rank."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sharding", description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--lab", type=int, default=0, metavar="MBIT/S")
    parser.add_argument("--shard", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.folder:
        pretend(arguments.nodes, arguments.ranks)
        work(arguments.folder, None if arguments.shard == "none" else arguments.shard)
        return
    if arguments.lab and (reason := why_not()):
        raise SystemExit(f"no lab: {reason}")
    ways = ("none", "world") if arguments.nodes == 1 else ("none", "node", "world")
    where = (arguments.ranks, arguments.nodes, arguments.lab, RUN_SECONDS)
    of_ways = {way: measured("benchmarks.sharding", *where, "--shard", way) for way in ways}
    raise SystemExit(1 if show(of_ways, arguments.nodes) else 0)


if __name__ == "__main__":
    main()
