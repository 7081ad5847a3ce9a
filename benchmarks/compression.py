"""Does compression cost quality? Models trained with each way to send gradients. `python -m benchmarks.compression`.

Ranks pretend to be nodes of their own, so that all sums cross nodes. Each way starts from the same weights and sees the
same batches, with several seeds. "int8, anew" is int8 without error feedback: gradients are reduced by an allreduce of
its own in each step, which keeps nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.findings import machine
from benchmarks.peers import ROOT
from benchmarks.ranks import answers_of_ranks

__all__ = ["main"]

WAYS = ("none", "bf16", "int8", "int8, anew")
SEEDS = 5
RUN_SECONDS = 1800.0
CONTEXT, CHARACTERS = 32, 128


def digits() -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """scikit-learn's 1,797 handwritten digits, a fifth of them for the test."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    images, labels = load_digits(return_X_y=True)
    x, test_x, y, test_y = train_test_split((images / 16).astype("float32"), labels, test_size=361, random_state=1)
    return (x, y), (test_x, test_y)


def digits_model() -> Any:
    """All kernels but the last are sent in blocks."""
    import keras

    layers = [keras.layers.Dense(512, activation="relu"), keras.layers.Dense(256, activation="relu")]
    return keras.Sequential([keras.Input((64,)), *layers, keras.layers.Dense(10)])


def text() -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """The project's documentation, character by character: the next one after 32; the last tenth for the test."""
    pages = "".join(page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs").glob("*.md")))
    numbers = np.frombuffer(pages.encode("ascii", "replace"), np.uint8).astype(np.int32)
    windows = np.lib.stride_tricks.sliding_window_view(numbers, CONTEXT + 1)
    cut = len(windows) * 9 // 10
    test = windows[cut::5]
    return (windows[:cut, :-1], windows[:cut, -1]), (test[:, :-1], test[:, -1])


def text_model() -> Any:
    """1.1 M weights."""
    import keras

    hidden = [keras.layers.Dense(256, activation="relu"), keras.layers.Dense(256, activation="relu")]
    first = [keras.Input((CONTEXT,)), keras.layers.Embedding(CHARACTERS, 128), keras.layers.Flatten()]
    return keras.Sequential([*first, *hidden, keras.layers.Dense(CHARACTERS)])


def scales() -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """A linear map of 256 features, of which each second is a hundred times smaller but matters as much; noisy."""
    random = np.random.default_rng(1)
    of_feature = np.where(np.arange(256) % 2 == 0, 1.0, 0.01)
    normal, true = random.standard_normal((8192, 256)), random.standard_normal((256, 64)) / 16
    x, y = (normal * of_feature).astype("float32"), (normal @ true).astype("float32")
    noise = random.standard_normal(y.shape).astype("float32") / 2
    return (x[:6144], (y + noise)[:6144]), (x[6144:], y[6144:])


def scales_model() -> Any:
    """One kernel, in blocks of four features."""
    import keras

    return keras.Sequential([keras.Input((256,)), keras.layers.Dense(64)])


# data, model, optimizer and its learning rate, steps, batch of a rank
TASKS: dict[str, tuple[Callable[[], Any], Callable[[], Any], str, float, int, int]] = {
    "digits, SGD": (digits, digits_model, "SGD", 0.05, 300, 16),
    "digits, Adam": (digits, digits_model, "Adam", 1e-3, 300, 16),
    "text, SGD": (text, text_model, "SGD", 0.1, 300, 16),
    "text, Adam": (text, text_model, "Adam", 1e-3, 300, 16),
    "scales, SGD": (scales, scales_model, "SGD", 5.0, 3000, 32),
    "scales, Adam": (scales, scales_model, "Adam", 0.05, 300, 64),
}


def trained(task: str, way: str, seed: int) -> dict[str, float]:
    """Loss and accuracy on the test data after the last step."""
    import keras
    import tensorflow as tf

    import smddp_tf as hvd

    data, model_of, name, rate, steps, batch = TASKS[task]
    (x, y), (test_x, test_y) = data()
    keras.utils.set_random_seed(seed)
    model = model_of()
    how = {"momentum": 0.9} if name == "SGD" else {}
    optimizer = getattr(keras.optimizers, name)(rate, **how)
    optimizer.build(model.trainable_variables)
    classes = test_y.ndim == 1
    loss_of = (
        keras.losses.SparseCategoricalCrossentropy(from_logits=True) if classes else keras.losses.MeanSquaredError()
    )

    @tf.function
    def step(inputs: Any, labels: Any) -> None:
        tape = tf.GradientTape()
        if way != "int8, anew":
            tape = hvd.DistributedGradientTape(tape, compression=way, sparse_as_dense=True)
        with tape:
            loss = loss_of(labels, model(inputs, training=True))
        grads = [tf.convert_to_tensor(grad) for grad in tape.gradient(loss, model.trainable_variables)]
        if way == "int8, anew":
            grads = hvd.grouped_allreduce(grads, compression="int8", name="anew")
        optimizer.apply(grads, model.trainable_variables)

    order = np.random.default_rng(seed)
    for _ in range(steps):
        chosen = order.integers(0, len(x), batch * hvd.size())[hvd.rank() :: hvd.size()]
        step(tf.constant(x[chosen]), tf.constant(y[chosen]))
    outputs = model(tf.constant(test_x))
    answer = {"loss": float(loss_of(test_y, outputs))}
    if classes:
        answer["accuracy"] = float(np.mean(np.argmax(outputs, axis=-1) == test_y))
    return answer


def work(folder: Path, tasks: list[str]) -> None:
    """The program of one rank."""
    import smddp_tf as hvd

    hvd.init()
    answer = {task: {way: [trained(task, way, seed) for seed in range(SEEDS)] for way in WAYS} for task in tasks}
    (folder / f"{hvd.rank()}.json").write_text(json.dumps(answer), encoding="utf-8")
    hvd.shutdown()


def show(answer: dict[str, dict[str, list[dict[str, float]]]]) -> None:
    """Mean and standard deviation over the seeds, and the difference to bf16 in its deviations."""
    for task, ways in answer.items():
        print(f"{task}: {TASKS[task][4]} steps, {SEEDS} seeds; mean and standard deviation on the test data")
        figures = list(ways["none"][0])
        print("".join(f"{head:>22}" for head in ("sent as", *figures, "loss, to bf16")))
        of_bf16 = [run["loss"] for run in ways["bf16"]]
        for way, runs in ways.items():
            cells = [way]
            for figure in figures:
                values = [run[figure] for run in runs]
                cells.append(f"{statistics.mean(values):.4f} +- {statistics.stdev(values):.4f}")
            apart = statistics.mean(run["loss"] for run in runs) - statistics.mean(of_bf16)
            cells.append(f"{apart / statistics.stdev(of_bf16):+.2f} deviations")
            print("".join(f"{cell:>22}" for cell in cells))


def main() -> None:
    """Starts the ranks and shows what they found; is itself the program of a rank."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compression", description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--tasks", default="; ".join(TASKS), help="of: " + "; ".join(TASKS))
    parser.add_argument("--output", type=Path, help="results file")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    tasks = arguments.tasks.split("; ")
    if arguments.folder:
        os.environ["SMDDP_HOST_ID"] = "pretended-" + os.environ.get("OMPI_COMM_WORLD_RANK", "0")
        work(arguments.folder, tasks)
        return
    words = ("--folder", "{folder}", "--tasks", arguments.tasks)
    answer = answers_of_ranks("benchmarks.compression", arguments.ranks, RUN_SECONDS, *words)[0]
    show(answer)
    path = arguments.output or ROOT / "benchmarks" / "results" / time.strftime(
        "%Y-%m-%d-%H%M-compression.json", time.gmtime()
    )
    path.write_text(json.dumps({"machine": machine(), "ranks": arguments.ranks, "tasks": answer}, indent=1) + "\n")
    print(f"written to {path}")


if __name__ == "__main__":
    main()
