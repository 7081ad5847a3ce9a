"""What each rank reads of eight files, cut by element and by file.

`python -m benchmarks.storage [--ranks 4] [--picture docs/images/storage.svg]` prints a table; it writes the files into
a temporary folder and starts its ranks itself. Bytes are what Linux counts in /proc/self/io (rchar).
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.ranks import answers_of_ranks

__all__ = ["FILES", "main"]

FILES, RECORDS, RECORD_BYTES = 8, 9, 1 << 20
RUN_SECONDS = 300
WAYS = ("element", "file", "auto")


def write_files(folder: Path) -> None:
    """TFRecord files whose records are equally long; each begins with its number."""
    import tensorflow as tf

    for number in range(FILES):
        with tf.io.TFRecordWriter(str(folder / f"part-{number}.tfrecord")) as file:
            for record in range(RECORDS):
                file.write(f"{number * RECORDS + record:04d}".encode() + bytes(RECORD_BYTES - 4))


def measure(data: Path) -> dict[str, dict[str, Any]]:
    """What this rank reads of the files that rank 0 writes, by way; all ranks call it."""
    import tensorflow as tf

    import smddp_tf as hvd
    from smddp_tf.monitor.bytes_read import bytes_read

    if hvd.rank() == 0:
        write_files(data)
    hvd.barrier()
    names = sorted(str(file) for file in data.iterdir())
    found = {}
    for way in WAYS:
        part = hvd.data.shard(tf.data.TFRecordDataset(names), by=way).map(
            lambda record: tf.strings.substr(record, 0, 4)
        )
        before, begin = bytes_read(), time.perf_counter()
        numbers = [int(number) for number in part.as_numpy_iterator()]
        found[way] = {"read": bytes_read() - before, "seconds": time.perf_counter() - begin, "numbers": numbers}
    return found


def work(folder: Path, data: Path) -> None:
    """The program of one rank."""
    import smddp_tf as hvd

    hvd.init()
    answer = measure(data)
    (folder / f"{hvd.rank()}.json").write_text(json.dumps(answer), encoding="utf-8")
    hvd.shutdown()


def show(answers: list[dict[str, Any]]) -> int:
    """Prints the table; returns in how many ways elements were lost or came twice."""
    total = FILES * RECORDS * RECORD_BYTES
    print(f"{FILES} files, {total / 1e6:.0f} MB; MB read by rank, in all, and the seconds of the slowest rank")
    wrong = 0
    for way in WAYS:
        of_ranks = [answer[way] for answer in answers]
        read = [rank["read"] for rank in of_ranks]
        cells = [f"{each / 1e6:.1f}" for each in read]
        slowest = max(rank["seconds"] for rank in of_ranks)
        print(f"{way:>8}", *cells, f"{sum(read) / total:.2f} x the data", f"{slowest:.2f} s", sep="  ")
        numbers = sorted(number for rank in of_ranks for number in rank["numbers"])
        wrong += numbers != list(range(FILES * RECORDS))
    return wrong


def draw(answers: list[dict[str, Any]], path: Path) -> None:
    """Bars: what each rank has read, by element and by file."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "storage"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 2.6), layout="constrained")
    for place, way in enumerate(("element", "file")):
        read = [answer[way]["read"] / 1e6 for answer in answers]
        bars = axes.bar([rank + 0.4 * place - 0.2 for rank in range(len(read))], read, 0.38, label=f'by="{way}"')
        axes.bar_label(bars, fmt="%.1f", fontsize=8)
    axes.axhline(FILES * RECORDS * RECORD_BYTES / 1e6, color="grey", linestyle=":", label="all files")
    axes.set(xlabel="rank", ylabel="MB read in an epoch", xticks=range(len(answers)), ylim=(0, 100))
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Starts the ranks and shows what they measured; is itself the program of a rank."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.storage", description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--data", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.folder:
        work(arguments.folder, arguments.data)
        return
    with tempfile.TemporaryDirectory() as data:
        program = ("benchmarks.storage", arguments.ranks, RUN_SECONDS, "--folder", "{folder}", "--data", data)
        answers = answers_of_ranks(*program)
    if arguments.picture:
        draw(answers, arguments.picture)
    raise SystemExit(1 if show(answers) else 0)


if __name__ == "__main__":
    main()
