"""`keras.distribution.DataParallel`: a callback that runs on one rank alone is under none."""

from __future__ import annotations

import keras
import numpy as np
import pytest

import smddp_tf.keras as hvk
from smddp_tf.keras.roles.current_distribution import alone
from tests.support.distributed_keras import (
    BATCH,
    distributed,
    samples,
    with_statistics,
)

pytestmark = pytest.mark.ranks("2")


def test_a_callback_that_writes_files_may_use_the_model(hvd, rank, tmp_path):
    """It runs on rank 0 only, which evaluates and predicts alone, on all of the data; twice, with the same callback."""
    x, y = samples(32)
    seen = []

    class Best(keras.callbacks.ModelCheckpoint):
        def on_epoch_end(self, epoch, logs=None):
            predicted = self.model.predict(x, verbose=0)
            loss = self.model.evaluate(x, y, verbose=0, return_dict=True)["loss"]
            assert loss == pytest.approx(float(np.mean((predicted - y) ** 2)), rel=1e-5)
            seen.append(loss)
            super().on_epoch_end(epoch, {**(logs or {}), "extra": loss})

    class Logger(keras.callbacks.CSVLogger):
        def on_train_batch_end(self, batch, logs=None):
            seen.append(len(self.model.predict(x[:3], verbose=0)))

    best = Best(str(tmp_path / f"{rank}.keras"), monitor="extra", mode="min", save_best_only=True)
    with distributed():
        made, _ = with_statistics()
        for _ in range(2):
            made.fit(x, y, batch_size=BATCH, verbose=0, callbacks=[best, Logger(str(tmp_path / f"{rank}.csv"))])
        assert len(seen) == (6 if rank == 0 else 0)
        assert (tmp_path / f"{rank}.keras").exists() == (rank == 0)
        assert made.evaluate(x, y, verbose=0) > 0.0


def test_what_needs_all_ranks_is_an_error_where_one_runs_alone(hvd, size):
    x, y = samples(32)
    with distributed():
        made, _ = with_statistics()
        made.fit(x, y, batch_size=BATCH, verbose=0)
        with alone():
            for call in (lambda: made.fit(x, y, verbose=0), lambda: hvk.evaluate(made, x, y, verbose=0)):
                with pytest.raises(RuntimeError, match="needs all ranks. Received: a call in a callback"):
                    call()
