"""A job that is recorded: a loop; one on two pretended nodes that is killed; a `fit` that asks for it itself.

Only the last one needs TensorFlow, which takes long to start.
"""

import os
import signal
import sys
import time
from pathlib import Path

import smddp_tf as hvd

STEPS = 6  # of an epoch


def loop(epoch):
    for _ in range(STEPS):
        with hvd.monitor.step(samples=4 + hvd.rank(), epoch=epoch):
            hvd.allgather_object(epoch)


def wait_for_recording(folder):
    """Until this rank, whose node is its own, has written its steps and two samples of each kind."""
    own = f"rank-{hvd.rank():05d}"
    wanted = {f"{own}.steps.jsonl": STEPS, f"{own}.process.jsonl": 2, f"host-*-{hvd.rank()}.jsonl": 2}
    until = time.monotonic() + 60
    while any(lines_in(folder.glob(name)) < number for name, number in wanted.items()) and time.monotonic() < until:
        time.sleep(0.05)


def lines_in(files):
    return sum(file.read_bytes().count(b"\n") for file in files)


def fit(folder):
    import keras
    import numpy as np

    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), "mse", jit_compile=False)
    x = np.random.default_rng(hvd.rank()).normal(size=(4 * STEPS, 4)).astype("float32")
    model.fit(x, x[:, :2], batch_size=4, epochs=2, verbose=0, callbacks=[hvd.callbacks.Diagnose(folder)])


if sys.argv[1] == "killed":
    os.environ["SMDDP_HOST_ID"] = f"node of {os.environ['OMPI_COMM_WORLD_RANK']}"
hvd.init()
if sys.argv[1] == "diagnose":
    fit(sys.argv[2])
else:
    loop(0)
    if sys.argv[1] == "killed":
        wait_for_recording(Path(os.environ["SMDDP_MONITOR"]))
        hvd.barrier()  # else mpirun ends the other rank
        os.kill(os.getpid(), signal.SIGKILL)
    loop(1)
