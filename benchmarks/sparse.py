"""Gradients of an embedding: gathered rows against the whole table, and what `smddp_tf` chooses by itself.

`python -m benchmarks.sparse [--ranks 2]` prints a table; it starts its ranks itself. Every rank looks up random words,
so that few repeat (uniform) or many do (Zipf, as in text). A time is that of the reduction of one gradient in a
`tf.function`, from the slices of the backward pass to the slices for the optimizer, on the slowest rank. Bytes are what
one rank receives: the others' unique rows and indices, or 2 (P-1)/P of the table.
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

ROWS, WIDTH = 200_000, 64
LOOKUPS = (1_000, 4_000, 16_000, 64_000, 256_000)
WORDS = ("uniform", "zipf")
# What `sparse.GATHER_AT_MOST` is set to; None leaves it.
WAYS: dict[str, float | None] = {"gathered": 1e9, "whole table": 0.0, "chosen": None}
REPETITIONS = 7
RUN_SECONDS = 300


def words_of_rank(words: str, lookups: int, rank: int) -> np.ndarray:
    """int32 array of `lookups` rows of the table."""
    random = np.random.default_rng([lookups, rank])
    if words == "zipf":
        return (random.zipf(1.2, lookups) % ROWS).astype(np.int32)
    return random.integers(0, ROWS, lookups, np.int32)


def measure(words: str, lookups: int) -> dict[str, Any]:
    """Times the ways in turns, on this rank, after their results were compared."""
    import tensorflow as tf

    import smddp_tf as hvd
    from smddp_tf.collectives import sparse
    from smddp_tf.gradients.reducer import GradientReducer

    table = tf.Variable(tf.zeros([ROWS, WIDTH]))
    indices = words_of_rank(words, lookups, hvd.rank())
    values = tf.constant(np.random.default_rng(hvd.rank()).integers(-8, 8, (lookups, WIDTH)).astype(np.float32))
    slices = tf.IndexedSlices(values, tf.constant(indices), tf.constant([ROWS, WIDTH], tf.int64))

    def traced(way: str) -> Callable[[], Any]:
        reducer = GradientReducer(f"bench.{words}.{lookups}.{way}")
        return tf.function(lambda: reducer([slices], [table])).get_concrete_function()

    standard = sparse.GATHER_AT_MOST
    runs = {}
    for way, at_most in WAYS.items():
        sparse.GATHER_AT_MOST = standard if at_most is None else at_most
        runs[way] = traced(way)
    sparse.GATHER_AT_MOST = standard
    results = {way: tf.convert_to_tensor(run()[0]).numpy() for way, run in runs.items()}
    wrong = sum(int(np.count_nonzero(result != results["whole table"])) for result in results.values())
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(REPETITIONS):
        for way, run in runs.items():
            hvd.barrier(name="bench.sparse")
            begin = time.perf_counter()
            run()[0].values[0, 0].numpy()
            seconds[way].append(time.perf_counter() - begin)
    unique = len(np.unique(indices))
    return {"words": words, "lookups": lookups, "unique": unique, "wrong": wrong, "seconds": seconds}


def work(folder: Path) -> None:
    """The program of one rank."""
    import smddp_tf as hvd

    hvd.init()
    answers = [measure(words, lookups) for words in WORDS for lookups in LOOKUPS]
    (folder / f"{hvd.rank()}.json").write_text(json.dumps(answers), encoding="utf-8")
    hvd.shutdown()


def show(of_ranks: list[list[dict[str, Any]]]) -> int:
    """Prints the table; returns the number of wrong elements."""
    ranks = len(of_ranks)
    table_bytes = 2 * (ranks - 1) / ranks * ROWS * WIDTH * 4
    print(f"embedding {ROWS} x {WIDTH}, float32, {ranks} ranks; median of {REPETITIONS}, slowest rank")
    heads = ["words", "lookups", "unique/rank", "MB gathered", "MB table", *WAYS, "wrong"]
    print("".join(f"{head:>13}" for head in heads))
    for cases in zip(*of_ranks):
        first = cases[0]
        received = sum(case["unique"] for case in cases[1:]) * (WIDTH * 4 + 4)
        times = [Timing.of(slowest_rank([case["seconds"][way] for case in cases])).median for way in WAYS]
        cells = [first["words"], first["lookups"], first["unique"], f"{received / 1e6:.2f}", f"{table_bytes / 1e6:.1f}"]
        cells += [*map(duration_text, times), sum(case["wrong"] for case in cases)]
        print("".join(f"{cell!s:>13}" for cell in cells))
    return sum(case["wrong"] for cases in of_ranks for case in cases)


def main() -> None:
    """Starts the ranks and shows what they measured; is itself the program of a rank."""
    measure_on_ranks("benchmarks.sparse", __doc__.splitlines()[0], RUN_SECONDS, work, show)


if __name__ == "__main__":
    main()
