"""Says what a job computes, and how much of it was read where it lay.

shared_tensors.py [hosts=a,a,b] [not_on=RANK] [fork]
"""

from __future__ import annotations

import hashlib
import os
import sys

options = dict(word.partition("=")[::2] for word in sys.argv[1:])
rank_of_launcher = int(os.environ.get("OMPI_COMM_WORLD_RANK", "0"))
if "hosts" in options:
    os.environ["SMDDP_HOST_ID"] = options["hosts"].split(",")[rank_of_launcher]
if options.get("not_on") == str(rank_of_launcher):
    os.environ["SMDDP_SHARED_TENSORS"] = "0"

import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

import smddp_tf as hvd  # noqa: E402
import smddp_tf.keras as hvd_keras  # noqa: E402
from smddp_tf._native import loader  # noqa: E402

hvd.init()
rank, size = hvd.rank(), hvd.size()


def referred() -> int:
    return int(loader.core().stats()["node_bytes_referred"])


def check_sum(elements: int) -> None:
    mine = tf.range(elements, dtype=tf.float32) % 1021 + 7.0 * rank
    mean = hvd.allreduce(tf.identity(mine), op=hvd.Average, name="sum")
    expected = np.arange(elements, dtype=np.float32) % 1021 + 7.0 * (size - 1) / 2
    np.testing.assert_allclose(mean.numpy(), expected, rtol=1e-6)
    np.testing.assert_array_equal(mine.numpy(), np.arange(elements, dtype=np.float32) % 1021 + 7.0 * rank)


if "fork" in options:
    kept = tf.fill([50_000], 3.0 + rank)
    seen = kept.numpy()  # a view, without a copy
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writing)
        os.read(reading, 1)  # until the parent has freed its tensor and used memory again
        os._exit(0 if (seen == 3.0 + rank).all() else 1)
    del seen, kept
    others = [tf.fill([50_000], 5.0 + rank) for _ in range(20)]
    check_sum(1 << 20)
    os.close(writing)
    assert os.waitpid(child, 0)[1] == 0
    assert all((other.numpy() == 5.0 + rank).all() for other in others)

for elements in (1, 5_000, 100_001, 1 << 20):
    check_sum(elements)
after_sums = referred()

keras.utils.set_random_seed(3)
model = keras.Sequential([keras.layers.Input([64]), keras.layers.Dense(700, "relu"), keras.layers.Dense(9)])
model.compile(hvd_keras.DistributedOptimizer(keras.optimizers.Adam(1e-2)), keras.losses.MeanSquaredError())
generator = np.random.default_rng(1)
inputs, outputs = generator.standard_normal([240, 64]), generator.standard_normal([240, 9])
model.fit(
    inputs[rank::size], outputs[rank::size], batch_size=24 // size, epochs=3, shuffle=False, verbose=0,
    callbacks=[hvd_keras.callbacks.BroadcastGlobalVariablesCallback(0)],
)  # fmt: skip
weights = hashlib.sha256(b"".join(weight.tobytes() for weight in model.get_weights())).hexdigest()[:16]
training = referred() - after_sums
print(f"rank {rank}: sums {after_sums} training {training} weights {weights}", flush=True)
