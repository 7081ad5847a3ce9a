"""A distributed training's files load in plain Keras and TensorFlow, in a process that never imports this library."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.mpirun import launch

pytestmark = pytest.mark.launches

RANKS = 2
STEPS = 3
OF_KERAS = "keras.src.optimizers"
# case: the optimizer's class and the inner one's, and where plain Keras must find them
CASES = {
    "adam": (["Adam", "Adam"], [OF_KERAS, OF_KERAS]),
    "mixed_float16": (["LossScaleOptimizer", "SGD"], [OF_KERAS, OF_KERAS]),
    "scaled_by_the_user": (["LossScaleOptimizer", "SGD"], [OF_KERAS, OF_KERAS]),
    "registered": (["RegisteredSGD", "RegisteredSGD"], ["user_optimizers"] * 2),
    "unregistered": (["UnregisteredSGD", "UnregisteredSGD"], ["user_optimizers"] * 2),
}
FILES = [f"{case}.keras" for case in CASES] + ["adam.pickle", "adam.weights.h5", "adam.checkpoint"]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any]]:
    """What rank 0 saved and what the other process found: one launch each for all formats."""
    folder: Path = tmp_path_factory.mktemp("saved")
    launch([Path(__file__).with_name("save_formats.py"), folder], RANKS, timeout=240).check()
    launch([Path(__file__).with_name("load_elsewhere.py"), folder], None, timeout=240).check()
    return json.loads((folder / "expected.json").read_text()), json.loads((folder / "found.json").read_text())


def test_the_other_process_has_not_seen_this_library(saved) -> None:
    assert saved[1]["ours"] == []


@pytest.mark.parametrize("file", FILES)
def test_model_and_optimizer_state(saved, file: str) -> None:
    expected, found = saved[0][file.split(".")[0]], saved[1][file]
    classes, modules = CASES[file.split(".")[0]]
    assert found["classes"] == expected["classes"] == classes
    assert [found_in.startswith(module) for found_in, module in zip(found["modules"], modules)] == [True, True]
    assert found["steps"] == expected["steps"] == STEPS
    assert found["state"] == expected["state"]
    np.testing.assert_allclose(found["predicted"], expected["predicted"], rtol=1e-6)


@pytest.mark.parametrize("case", CASES)
def test_legacy_h5(saved, case: str) -> None:
    """The classes and the weights; plain Keras 3 does not restore the optimizer's slots, `hvd.load_model` does."""
    expected, found = saved[0][case], saved[1][f"{case}.h5"]
    assert found["classes"] == expected["classes"] == CASES[case][0]
    np.testing.assert_allclose(found["predicted"], expected["predicted"], rtol=1e-6)


@pytest.mark.parametrize("kind", ["export", "saved_model"])
def test_saved_model_has_none_of_our_ops(saved, kind: str) -> None:
    found = saved[1][f"adam.{kind}"]
    np.testing.assert_allclose(found["predicted"], saved[0]["adam"]["predicted"], rtol=1e-6)
    assert "MatMul" in found["ops"]
    assert not [op for op in found["ops"] if "smddp" in op.lower()]
