"""Optimizer state in parts: saved whole, loaded by plain Keras and on other numbers of ranks, also after a kill."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.mpirun import launch
from tests.variants import in_full

pytestmark = pytest.mark.launches

SCRIPT = Path(__file__).with_name("sharded_saved.py")
PLAIN = """
import sys, keras, numpy as np
model = keras.models.load_model(sys.argv[1])
assert "smddp_tf" not in sys.modules
slots = [variable.path.rsplit("_", 1)[-1] for variable in model.optimizer.variables if variable.shape == (24, 37)]
assert model.optimizer.variables[0].numpy() == 6
assert all(np.abs(variable.numpy()).min() > 0 for variable in model.optimizer.variables[2:])
print(type(model.optimizer).__name__, *slots)
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    finished = launch([SCRIPT, "train", folder, "world"], 2, timeout=120)
    assert finished.returncode != 0
    assert "trained" in finished.output
    return folder


def test_plain_keras_loads_it(saved: Path) -> None:
    command = [sys.executable, "-c", PLAIN, str(saved / "saved.keras")]
    printed = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    assert "AdamW average momentum velocity" in printed


@pytest.mark.parametrize(
    ("ranks", "shard"), [(3, "world"), *in_full((None, "none"), (2, "none"), (2, "world"), (4, "2"))]
)
def test_killed_on_2_ranks(saved: Path, ranks: int | None, shard: str) -> None:
    output = launch([SCRIPT, "resume", saved, shard], ranks, timeout=180).check().output
    assert output.count("as it must be") == (ranks or 1)
