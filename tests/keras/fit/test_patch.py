"""`Model.fit` that other libraries have wrapped, in whatever way and order, is looked after all the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.mpirun import launch
from tests.support.recorder import read_records

pytestmark = pytest.mark.launches

RANKS = 2


@pytest.fixture(scope="module")
def wrapped(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("wrapped")
    launch([Path(__file__).with_name("fit_wrapped.py"), folder], RANKS, timeout=120).check()
    return read_records(folder, RANKS)


@pytest.mark.parametrize("case", ["before", "subclass", "after", "replaced"])
def test_wrappers_of_fit(wrapped: list[dict[str, dict[str, Any]]], case: str) -> None:
    for record in wrapped:
        assert record[case]["error"] == "", record[case]


@pytest.mark.one_process
def test_a_program_without_init_trains_as_plain_keras(tmp_path: Path) -> None:
    """With callbacks of each kind that `fit` looks at."""
    code = (
        "import keras, numpy as np, smddp_tf.keras\n"
        "model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])\n"
        "model.compile('sgd', 'mse')\n"
        "c = keras.callbacks\n"
        "callbacks = [c.ModelCheckpoint('m.keras'), c.CSVLogger('l.csv'), c.BackupAndRestore('b'),\n"
        "    c.EarlyStopping('loss'), c.ReduceLROnPlateau('loss'), c.LearningRateScheduler(lambda epoch: 0.1)]\n"
        "x = np.ones((4, 2))\n"
        "model.fit(x, x[:, :1], epochs=2, callbacks=callbacks)\n"
        "model.fit(__import__('tensorflow').data.Dataset.from_tensors((x, x[:, :1])), verbose=2)\n"
        "print('hvd' in dir(), smddp_tf.keras.is_initialized(), 'trained')\n"
    )
    script = tmp_path / "plain.py"
    script.write_text(f"import os\nos.chdir({str(tmp_path)!r})\n{code}")
    output = launch([script], None, timeout=90).check().output
    assert "False False trained" in output
    assert (tmp_path / "m.keras").exists()
