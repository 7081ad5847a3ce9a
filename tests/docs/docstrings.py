"""Runs every example of every docstring of the package on one rank, with the names in it that examples leave out.

Argument: a folder for what they write. An example that shows no result may have any; one that shows a result must have
that one. Prints one line per docstring and the failures; the exit status counts those.
"""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import os
import pkgutil
import sys
import time
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import smddp_tf

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


class Checker(doctest.OutputChecker):
    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        return not want or super().check_output(want, got, optionflags)


class Batches(keras.utils.PyDataset):
    def __init__(self, x, y):
        super().__init__()
        self.x, self.y = x, y

    def __len__(self):
        return 2

    def __getitem__(self, index):
        return self.x[index::2], self.y[index::2]


def given(module) -> dict[str, object]:
    """What a reader would have: data, a compiled model, an optimizer. New for every docstring."""
    x, y = np.ones((8, 4), "float32"), np.ones((8, 1), "float32")
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.01), loss="mse", metrics=["accuracy"])
    for name in ("model.keras", "checkpoint.keras"):
        model.save(name)
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(4)
    hvd = importlib.import_module("smddp_tf.keras") if module.__name__.startswith("smddp_tf.keras") else smddp_tf
    sdp = importlib.import_module("smddp_tf.sdp")
    names = {"dataset": dataset, "test_data": dataset, "my_py_dataset": Batches(x, y), "images": x, "labels": y}
    names |= {"grads": [tf.ones([4, 1]), tf.ones([1])], "settings": {"rate": 0.1}, "batches": iter([0, 1]), "sdp": sdp}
    names |= {"train_step": lambda batch: None, "batches_per_epoch": 2, "my_part_of_the_data": [x]}
    numbers = {
        "epoch": 0,
        "epochs": 1,
        "first_epoch": 0,
        "scores": [1.0, 2.0],
        "rate": 0.01,
        "correct": 3.0,
        "loss": 0.5,
    }
    own = {"model": model, "optimizer": keras.optimizers.SGD(0.01), "loss_fn": keras.losses.MeanSquaredError()}
    return {**vars(module), "hvd": hvd, "tf": tf, "keras": keras, "np": np, "x": x, "y": y, **names, **numbers, **own}


def modules_with_examples():
    for found in pkgutil.walk_packages(smddp_tf.__path__, "smddp_tf."):
        if found.name == "smddp_tf.torch":  # it needs PyTorch
            continue
        source = getattr(importlib.util.find_spec(found.name), "origin", None)
        if source and source.endswith(".py") and ">>>" in Path(source).read_text(encoding="utf-8"):
            yield importlib.import_module(found.name)
    yield smddp_tf


def main(folder: str) -> int:
    os.chdir(folder)
    runner = doctest.DocTestRunner(Checker(), verbose=False, optionflags=FLAGS)
    tests, examples = 0, 0
    for module in modules_with_examples():
        for test in doctest.DocTestFinder(exclude_empty=True).find(module, module.__name__):
            if not test.examples:
                continue
            assert not any(example.options.get(doctest.SKIP) for example in test.examples), test.name
            keras.utils.set_random_seed(1)
            if "sdp.init()" not in test.docstring:  # that one wants to be the first
                smddp_tf.init(process_sets="dynamic")
            test.globs.update(given(module))
            begin = time.monotonic()
            runner.run(test, clear_globs=False)
            tests, examples = tests + 1, examples + len(test.examples)
            print(f"{test.name}: {len(test.examples)} examples, {time.monotonic() - begin:.1f} s")
            smddp_tf.shutdown()
    print(f"DOCSTRINGS {tests} EXAMPLES {examples} FAILED {runner.summarize(verbose=False).failed}")
    return min(runner.failures, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
