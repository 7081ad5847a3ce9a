"""Training steps with an embedding table on several ranks: `DistributedEmbedding` beside what there is without it.

`python -m benchmarks.embedding [--ranks 2]` prints a table; it starts its ranks itself. A step looks up random ids (of
a Zipf distribution, so that some repeat), computes a loss of the rows, and applies SGD. Ways: the table cut by rows; on
every rank, its gradient reduced as any other; and cut by rows with alltoalls as a user writes them, where
`PartialDistributedOptimizer` keeps the gradients local. A time is that of the slowest rank; the ways take turns.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import Timing, duration_text, slowest_rank
from benchmarks.ranks import measure_on_ranks

__all__ = ["main"]

ROWS = (100_000, 1_000_000, 10_000_000)
WIDTH, LOOKUPS = 32, 16_384  # of each rank
WAYS = ("row_wise", "default_device", "by hand")
REPETITIONS = 9
RUN_SECONDS = 600


def layer_of(way: str, rows: int) -> Any:
    """A layer from ids to rows."""
    import keras
    import tensorflow as tf

    import smddp_tf.keras as hvd

    class ByHand(keras.layers.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.part = self.add_weight(shape=(-(-rows // hvd.size()), WIDTH), initializer="zeros")

        def call(self, ids: Any) -> Any:
            owners = tf.cast(ids % hvd.size(), tf.int32)
            parts = tf.dynamic_partition(ids, owners, hvd.size())
            places = tf.dynamic_partition(tf.range(tf.size(ids)), owners, hvd.size())
            counts = tf.stack([tf.size(part) for part in parts])
            asked, splits = hvd.alltoall(tf.concat(parts, 0), counts)
            returned, _ = hvd.alltoall(tf.gather(self.part.value, asked // hvd.size()), splits)
            return tf.dynamic_stitch(places, tf.split(returned, counts, num=hvd.size()))

    if way == "by hand":
        return ByHand()
    table = hvd.layers.TableConfig("table", rows, WIDTH, "zeros", placement=way)
    return hvd.layers.DistributedEmbedding(hvd.layers.FeatureConfig("ids", table, (None,), (None, WIDTH)))


def step_of(way: str, rows: int, ids: Any) -> Callable[[], Any]:
    """One training step, traced."""
    import keras
    import tensorflow as tf

    import smddp_tf.keras as hvd

    layer = layer_of(way, rows)
    layer.build(None)
    optimizer = keras.optimizers.SGD(1e-5)
    if way == "by hand":
        optimizer = hvd.PartialDistributedOptimizer(optimizer, local_layers=layer)
    else:
        optimizer = hvd.DistributedOptimizer(optimizer)
    optimizer.build(layer.trainable_variables)

    @tf.function
    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((layer(ids) - 1.0) ** 2)
        optimizer.apply(tape.gradient(loss, layer.trainable_variables), layer.trainable_variables)
        return loss

    return step


def measure(rows: int) -> dict[str, Any]:
    """Times the ways in turns, on this rank; all of them must have the same losses."""
    import tensorflow as tf

    import smddp_tf as hvd

    random = np.random.default_rng([rows, hvd.rank()])
    ids = random.zipf(1.2, LOOKUPS) % rows
    steps = {way: step_of(way, rows, tf.constant(ids)) for way in WAYS}
    losses = {way: [float(step()) for _ in range(3)] for way, step in steps.items()}
    wrong = sum(not np.allclose(loss, losses["default_device"], rtol=1e-4) for loss in losses.values())
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(REPETITIONS):
        for way, step in steps.items():
            hvd.barrier(name="bench.embedding")
            begin = time.perf_counter()
            float(step())
            seconds[way].append(time.perf_counter() - begin)
    return {"rows": rows, "unique": len(np.unique(ids)), "wrong": wrong, "seconds": seconds}


def work(folder: Path) -> None:
    """The program of one rank."""
    import smddp_tf as hvd

    hvd.init()
    answers = [measure(rows) for rows in ROWS]
    (folder / f"{hvd.rank()}.json").write_text(json.dumps(answers), encoding="utf-8")
    hvd.shutdown()


def show(of_ranks: list[list[dict[str, Any]]]) -> int:
    """Prints the table; returns the number of wrong results."""
    ranks = len(of_ranks)
    print(f"{LOOKUPS} lookups a rank and step, {WIDTH} columns, float32, {ranks} ranks; median of {REPETITIONS}")
    heads = ["rows", "unique/rank", *WAYS, *(f"M/s {way}" for way in WAYS), "MB/rank cut", "MB/rank all", "wrong"]
    print("".join(f"{head:>20}" for head in heads))
    for cases in zip(*of_ranks):
        first = cases[0]
        times = [Timing.of(slowest_rank([case["seconds"][way] for case in cases])).median for way in WAYS]
        rates = [f"{ranks * LOOKUPS / each / 1e6:.2f}" for each in times]
        table = first["rows"] * WIDTH * 4 / 1e6
        cells = [
            first["rows"],
            first["unique"],
            *map(duration_text, times),
            *rates,
            f"{table / ranks:.1f}",
            f"{table:.1f}",
        ]
        print("".join(f"{cell!s:>20}" for cell in [*cells, sum(case["wrong"] for case in cases)]))
    return sum(case["wrong"] for cases in of_ranks for case in cases)


def main() -> None:
    """Starts the ranks and shows what they measured; is itself the program of a rank."""
    measure_on_ranks("benchmarks.embedding", __doc__.splitlines()[0], RUN_SECONDS, work, show)


if __name__ == "__main__":
    main()
