"""Diagnose: the recording of a training, from a script."""

from __future__ import annotations

import pytest

import smddp_tf.keras as hvk
from tests.support.measured_fit import batches, fit

pytestmark = pytest.mark.ranks("2")


def test_diagnose_records_one_training(hvd, rank, size, shared_folder, capfd):
    fit(batches(rank, 3), hvk.callbacks.Diagnose(shared_folder), epochs=1)
    assert capfd.readouterr().out.count(f"smddprun --diagnose {shared_folder}") == int(rank == 0)
    assert len((shared_folder / f"rank-{rank:05d}.steps.jsonl").read_text().splitlines()) == 3
    hvd.barrier()
    fit(batches(rank, 2), epochs=1)
    assert len((shared_folder / f"rank-{rank:05d}.steps.jsonl").read_text().splitlines()) == 3
