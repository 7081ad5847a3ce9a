"""Runs the blocks of Python in README and docs/, and what README's diffs lead to, on every rank of a job.

A page's blocks run one after the other, in one namespace. Before a page stands `PRELUDE`: what its text takes for
granted, in small. `BEFORE` adds what one page needs, and `SMALLER` replaces sizes and places that a test cannot have.
Prints "BLOCKS <number>" and, for each that failed, its page, line and traceback.
"""

from __future__ import annotations

import os
import re
import sys
import traceback
from pathlib import Path

import keras

import smddp_tf.keras as hvd
import smddp_tf.keras.distribution  # noqa: F401  (the page's own import, before any model is built)

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```(python|diff)\n(.*?)^```", re.MULTILINE | re.DOTALL)
PRELUDE = """
import keras, numpy as np, tensorflow as tf
import smddp_tf, smddp_tf.keras as hvd
hvd.init()
x, y = np.random.default_rng(0).normal(size=(128, 16)).astype("float32"), np.ones((128, 1), "float32")
test_x, test_y, epochs = x, y, 1
dataset = tf.data.Dataset.from_tensor_slices((x, y))
data = hvd.data.shard(dataset).batch(16)
def build_model():
    keras.utils.set_random_seed(1)
    return keras.Sequential([keras.Input((16,)), keras.layers.Dense(4, name="part_of_table"), keras.layers.Dense(1)])
model = build_model()
optimizer = keras.optimizers.Adam(0.001)
loss_of = keras.losses.MeanSquaredError()
model.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(0.001)), loss="mse")
def train_step(x, y):
    with tf.GradientTape() as tape:
        loss = loss_of(y, model(x, training=True))
    gradients = hvd.DistributedGradientTape(tape).gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss
"""
FILES = """
for number in range(4):
    with tf.io.TFRecordWriter(f"{number}.tfrecord") as file:
        file.write(b"1")
"""
BEFORE = {
    "batch-size.md": "images = range(1_281_167)",
    "compression.md": "tape = tf.GradientTape()",
    "elastic.md": "batches_per_epoch = 2\ndef train_step(number): pass\ndef batch_number(epoch, batch): return batch",
    "keras-callbacks.md": "dataset = data",
    "keras-distribution.md": FILES,
    "keras.md": "part_of_table = model.layers[0]\ntape = tf.GradientTape()",
    "keras-data.md": (
        "class Rows(keras.utils.PyDataset):\n"
        "    def __len__(self): return 8\n"
        "    def __getitem__(self, index): return x[16 * index : 16 * index + 16], y[16 * index : 16 * index + 16]\n"
        "my_py_dataset = Rows()"
    ),
    "process-sets.md": "hvd.shutdown()",
    "quickstart.md": "my_part_of_the_data = [(x[:16], y[:16])] * 2",
    "storage.md": f"{FILES}\ndef parse(line): return tf.strings.to_number(line)",
    "tensorboard.md": "import types\narguments = types.SimpleNamespace(logs='logs')",
}
SMALLER = (
    ("10_000_000", "1_000"),
    ("500_000, 64", "1_000, 64"),
    ('"/shared/', '"shared-'),
    ('"/data/', '"'),
    ('"data/', '"'),
    ("/tmp/steps.json", "steps.json"),
    ("epochs=20", "epochs=6"),
)
# Page and the beginning of a block: why it is not run here.
NOT_RUN = {
    ("insight.md", "for finding in"): "needs a recording; tests/insight/test_diagnosis.py",
    ("storage.md", "state.commit_to"): "needs S3; tests/elastic/test_commits_remote.py",
    ("notebooks.md", "from smddp_tf.run"): "starts a job, inside of one; tests/examples/test_notebook.py",
    ("launching.md", "import smddp_tf.run"): "starts a job, inside of one; tests/run/rank/test_task.py",
    ("launching.md", "from smddp_tf.ray"): "needs Ray; tests/starters/test_ray.py",
    ("launching.md", "import tempfile"): "needs Ray Train; tests/starters/test_ray_train.py",
    ("launching.md", "import smddp_tf.spark"): "needs Spark; tests/starters/test_spark.py",
    ("launching.md", "def train_on"): "needs Spark; tests/starters/test_spark.py",
    ("elastic.md", "def rescale"): "the optimizer's rate after a change of size; tests/elastic/test_state.py",
}


def run_page(page: Path) -> tuple[int, list[str]]:
    """The number of blocks that were run, and what went wrong."""
    text, failures, count = page.read_text(encoding="utf-8"), [], 0
    namespace: dict[str, object] = {"__name__": "page"}
    exec(compile(PRELUDE + BEFORE.get(page.name, ""), f"before {page.name}", "exec"), namespace)
    for found in BLOCK.finditer(text):
        kind, code = found.groups()
        if kind == "diff":
            if page.name != "README.md":
                continue
            code = "".join(line[1:] for line in code.splitlines(keepends=True) if not line.startswith("-"))
        if any(page.name == name and code.startswith(begin) for name, begin in NOT_RUN):
            continue
        for large, small in SMALLER:
            code = code.replace(large, small)
        line = text[: found.start()].count("\n") + 1
        count += 1
        try:
            exec(compile("\n" * line + code, str(page), "exec"), namespace)
        except Exception:
            failures.append(f"{page.relative_to(ROOT)}:{line}\n{traceback.format_exc()}")
            break  # the others build on it
        finally:
            keras.distribution.set_distribution(None)
    return count, failures


def main() -> None:
    hvd.init()
    folder = Path(sys.argv[1]) / str(hvd.rank())
    folder.mkdir()
    os.chdir(folder)
    total, failures = 0, []
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        if BLOCK.search(page.read_text(encoding="utf-8")) and page.name != "index.md":  # which begins as README
            count, failed = run_page(page)
            total, failures = total + count, failures + failed
    hvd.init()
    for rank, of_rank in enumerate(hvd.allgather_object(failures)):
        if hvd.rank() == 0:
            for failure in of_rank:
                print(f"FAILED on rank {rank}: {failure}", flush=True)
    if hvd.rank() == 0:
        print(f"BLOCKS {total} FAILED {len(failures)}", flush=True)


main()
