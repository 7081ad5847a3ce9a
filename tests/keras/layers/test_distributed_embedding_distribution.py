"""DistributedEmbedding under `keras.distribution`: batches that the ranks do not divide, and as few rows as ranks."""

from __future__ import annotations

import keras
import pytest

from tests.support.distributed_keras import distributed
from tests.support.early_variables import with_variables
from tests.support.embedding_models import (
    cut_model,
    data_of,
    give_first_tables,
    plain_model,
    relative_distance,
    tables_of,
)
from tests.variants import in_full

pytestmark = pytest.mark.ranks("2")

BATCH = 12
SAMPLES = 3 * BATCH + 1  # the last batch is one sample: all ranks but one have none
PLACEMENTS = ("row_wise", "column_wise", "table_wise")


@pytest.mark.parametrize("passes", [2, *in_full(None)])
def test_what_one_process_does(hvd, rank, passes, tmp_path):
    x, y = data_of(SAMPLES)
    options = {"batch_size": BATCH, "epochs": 4, "shuffle": False, "verbose": 0, "validation_data": (x, y)}
    plain = give_first_tables(plain_model())
    plain.compile(keras.optimizers.Adam(0.01, gradient_accumulation_steps=passes), "mse", metrics=["mae"])
    expected = with_variables(plain, data_of(1)).fit(x, y, **options).history
    with distributed():
        model = give_first_tables(cut_model(PLACEMENTS))
        model.compile(keras.optimizers.Adam(0.01, gradient_accumulation_steps=passes), "mse", metrics=["mae"])
        path = tmp_path / "whole.keras"
        history = model.fit(x, y, callbacks=[keras.callbacks.ModelCheckpoint(path)], **options).history
        results = model.evaluate(x, y, batch_size=BATCH, return_dict=True, verbose=0)
        predicted = model.predict(x, batch_size=BATCH, verbose=0)
    ours = tables_of(model)
    if rank == 0:
        assert relative_distance(ours, tables_of(plain)) < 2e-6
        assert path.exists()
    for name, values in expected.items():
        assert history[name] == pytest.approx(values, rel=1e-5), name
    assert results == pytest.approx(plain.evaluate(x, y, batch_size=BATCH, return_dict=True, verbose=0), rel=1e-5)
    assert predicted == pytest.approx(plain.predict(x, verbose=0), rel=1e-4, abs=1e-5)
