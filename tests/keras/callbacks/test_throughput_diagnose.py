"""Diagnose: the recording of a training, from a script."""

from __future__ import annotations

import time

import keras
import pytest
import tensorflow as tf

import smddp_tf.keras as hvk
from smddp_tf.monitor.files import steps_file
from tests.recordings import lines_of
from tests.support.measured_fit import batches, fit

pytestmark = pytest.mark.ranks("2")

LATE = 0.5  # of which a fifth, what the other rank may take itself, is much on a busy machine


def test_diagnose_records_one_training(hvd, rank, size, shared_folder, capfd):
    fit(batches(rank, 3), hvk.callbacks.Diagnose(shared_folder), epochs=1)
    assert capfd.readouterr().out.count(f"smddprun --diagnose {shared_folder}") == int(rank == 0)
    assert len((shared_folder / f"rank-{rank:05d}.steps.jsonl").read_text().splitlines()) == 3
    hvd.barrier()
    fit(batches(rank, 2), epochs=1)
    assert len((shared_folder / f"rank-{rank:05d}.steps.jsonl").read_text().splitlines()) == 3


@pytest.mark.parametrize("asked", ["whether one stops", "the same, of unknown length", "whether a signal came"])
def test_a_rank_that_is_late_behind_a_step(hvd, rank, size, shared_folder, asked):
    """The others wait for it where all ranks ask each other after a batch: that is not their own time."""
    late = [keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: time.sleep(LATE * rank))]
    if "signal" in asked:
        late.append(hvk.callbacks.PreemptionCheckpoint(shared_folder / "commits"))
    data = batches(rank, 6)
    data = data if "unknown" in asked else data.apply(tf.data.experimental.assert_cardinality(6))
    fit(data, hvk.callbacks.Diagnose(shared_folder), *late, epochs=1)
    steps = lines_of(steps_file(shared_folder, rank))[2:]  # the first ones trace
    assert len(steps) == 4
    own = [step["seconds"] - step["exposed"] for step in steps]
    assert min(own) > LATE if rank else min(step["exposed"] for step in steps) > 0.8 * LATE
    assert all(step["reducing"] >= step["exposed"] for step in steps)
