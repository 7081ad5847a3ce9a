"""TF_USE_LEGACY_KERAS=1: the same API on Keras 2 (tf_keras). In processes of their own: the variable is read early."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.mpirun import launch

pytestmark = [
    pytest.mark.launches,
    pytest.mark.skipif(
        importlib.util.find_spec("tf_keras") is None, reason="tf_keras is not installed; `make setup` brings it"
    ),
]

RANKS = 2
LEGACY = {"TF_USE_LEGACY_KERAS": "1"}
OPTIMIZERS = {
    "sgd": "SGD",
    "adam clipnorm": "Adam",
    "legacy sgd": "SGD",
    "legacy adam clipnorm": "Adam",
    "loss scale": "LossScaleOptimizerV3",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One launch for everything."""
    folder = tmp_path_factory.mktemp("legacy")
    launch([Path(__file__).with_name("legacy_keras.py"), folder], RANKS, timeout=300, env=LEGACY).check()
    return folder


@pytest.fixture(scope="module")
def ranks(folder: Path) -> list[dict[str, Any]]:
    return [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(RANKS)]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_fit_equals_one_process_on_the_whole_batch(ranks, name: str) -> None:
    for seen in ranks:
        difference, same_object, class_name = seen["fit"][name]
        assert difference < 1e-6
        assert not same_object
        assert class_name == OPTIMIZERS[name]


@pytest.mark.parametrize("way", ["minimize", "apply_gradients"])
@pytest.mark.parametrize("name", ["sgd", "legacy adam clipnorm"])
def test_loop_equals_one_process_on_the_whole_batch(ranks, name: str, way: str) -> None:
    assert max(seen["loop"][f"{name}, {way}"] for seen in ranks) < 1e-6


def test_every_update_reduces_once(ranks) -> None:
    for seen in ranks:
        assert seen["once"] > 0
        assert len(seen["reductions"]) == 5
        assert set(seen["reductions"].values()) == {seen["once"]}


@pytest.mark.parametrize("name", ["sgd", "legacy sgd"])
def test_callbacks(ranks, name: str) -> None:
    """The ranks begin with different weights and data; they end with the same, and with the same metrics."""
    first, other = (seen["callbacks"][name] for seen in ranks)
    assert first["weights"] == other["weights"]
    assert first["loss"] == other["loss"]
    assert first["loss"][-1] < first["loss"][0]
    np.testing.assert_allclose(first["lr"], [0.075, 0.1, 0.05], rtol=1e-6)
    assert first["momentum"] == pytest.approx(2.0)
    assert first["saved"] == [f"best-{name}-0.keras"]
    assert other["saved"] == []


@pytest.mark.parametrize("name", ["sgd", "adam clipnorm", "legacy sgd"])
def test_load_model_goes_on_bit_for_bit(ranks, name: str) -> None:
    assert [seen["resumed"][name] for seen in ranks] == [True, True]


@pytest.mark.parametrize("name", ["sgd", "legacy sgd"])
def test_a_warmup_trains_and_is_saved(ranks, name: str) -> None:
    """From the rate of one rank towards twice as much, while it decays by half in twelve steps."""
    expected = [0.1 * 1.25, 0.1 * 2 * 0.5 ** (3 / 12), 0.1 * 2 * 0.5]
    for seen in ranks:
        difference, rates = seen["schedules"][name]
        assert difference < 1e-6
        np.testing.assert_allclose(rates, expected, rtol=1e-6)


@pytest.mark.parametrize("name", ["sgd", "legacy sgd"])
def test_several_passes_for_one_update(ranks, name: str) -> None:
    """The sums of two passes: averaged over the ranks, or divided by their number where they stay local."""
    for rank, seen in enumerate(ranks):
        first, second = 2 * 1.5 + 10, 2 * 1.5 + 50
        mine = [(2 * (rank + 1) + 10) / RANKS, (2 * (rank + 1) + 50) / RANKS]
        expected = [[0, 0, 1], [-first, -mine[0], 2], [-first, -mine[0], 3], [-first - second, -sum(mine), 4]]
        np.testing.assert_allclose(seen["passes"][name], expected, rtol=1e-6)


def test_optimizers_made_anew_keep_their_settings(ranks) -> None:
    for seen in ranks:
        assert len(seen["anew"]) == 6
        assert set(seen["anew"].values()) == {-3.0}


def test_computed_gradients_are_reduced_once(ranks) -> None:
    """Clipped afterwards, with the argument that says that they are reduced and without."""
    for rank, seen in enumerate(ranks):
        assert len(seen["computed"]) == 32
        for how, (shared, local, missed) in seen["computed"].items():
            expected = -1.0 if rank == 0 and ", 1, " in how else -2.0
            assert (shared, local, missed) == (-2.0, expected, 0), how


def test_the_given_optimizer_stays_as_it_is(ranks) -> None:
    """And the one that reduces goes on with its state, as one process does."""
    for rank, seen in enumerate(ranks):
        assert len(seen["given"]) == 6
        for kind, (whole, theirs, kept, wrapped, plain, rates) in seen["given"].items():
            assert kept, kind
            assert rates, kind
            assert (wrapped, plain) == (3, 3), kind
            if "adam" not in kind:  # its own step: the momentum of two steps, and this rank's gradient
                assert theirs == pytest.approx(whole - (rank + 1) - 1.5), kind


@pytest.mark.parametrize("axis", ["one axis", "two axes"])
def test_sync_batch_normalization_equals_one_process(ranks, axis: str) -> None:
    assert max(seen["normal"][axis] for seen in ranks) < 1e-5


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("wrapped", "ValueError: `optimizer` must be an optimizer that is not wrapped yet"),
        ("scaled", "ValueError: `optimizer` must be an optimizer that is not wrapped yet"),
        ("keras 3", "This is a Keras 3 optimizer: take it from `tf.keras.optimizers`"),
        ("v1", "TensorFlow 1 optimizers are wrapped by"),
        ("name", "ValueError: `optimizer` must be a Keras 2 optimizer"),
        ("class", "Pass an instance"),
        ("passes", "NotImplementedError: With TF_USE_LEGACY_KERAS=1 a LossScaleOptimizer updates in every call"),
        ("evaluate", "NotImplementedError: hvd.evaluate needs Keras 3"),
        ("weighted", "NotImplementedError: MetricAverageCallback(weighted=True) needs Keras 3"),
        ("sums of metrics", "NotImplementedError: MetricSumCallback needs Keras 3"),
        ("uneven", "NotImplementedError: UnevenBatchesCallback needs Keras 3"),
        ("twice", "would be reduced again"),
        ("twice, passes", "would be reduced again"),
        ("nothing reduced", "was told to reduce nothing"),
        ("nothing reduced, legacy", "was told to reduce nothing"),
        ("nothing reduced, but by hand", "-1.5"),
        ("unread checkpoint", "has read values for variables that the optimizer has not made yet"),
        ("unread checkpoint, legacy", "has read values for variables that the optimizer has not made yet"),
        ("nothing reduced, legacy, but by hand", "-1.5"),
    ],
)
def test_what_is_refused(ranks, what: str, words: str) -> None:
    for seen in ranks:
        assert words in seen["refused"][what]


def test_keras_3_is_left_out(ranks) -> None:
    assert [seen["keras 3 imported"] for seen in ranks] == [False, False]


PLAIN = """
import sys, tf_keras
for path in sys.argv[1:]:
    model = tf_keras.models.load_model(path)
    normal = [type(layer).__module__ for layer in model.layers if type(layer) is tf_keras.layers.BatchNormalization]
    if normal:
        print("FOUND", normal)
    if model.optimizer is not None:
        used = model.optimizer
        print("FOUND", type(used).__module__, type(used).__name__, int(used.iterations.numpy()))
print("OURS", [module for module in sys.modules if module.startswith("smddp")])
"""


@pytest.fixture(scope="module")
def found_by_plain_keras_2(folder: Path) -> str:
    files = ("sgd-0.keras", "adam clipnorm-0.h5", "legacy sgd-0.h5", "normal-one axis-0.keras")
    return launch(["-c", PLAIN, *(folder / name for name in files)], None, timeout=120, env=LEGACY).check().output


def test_files_load_in_plain_keras_2(found_by_plain_keras_2: str) -> None:
    assert "FOUND tf_keras.src.optimizers.sgd SGD 6\n" in found_by_plain_keras_2
    assert "FOUND tf_keras.src.optimizers.adam Adam 6\n" in found_by_plain_keras_2
    assert "FOUND tf_keras.src.optimizers.legacy.gradient_descent SGD 6\n" in found_by_plain_keras_2
    assert "OURS []" in found_by_plain_keras_2


def test_synchronized_layers_load_in_plain_keras_2(found_by_plain_keras_2: str) -> None:
    assert "FOUND ['tf_keras.src.layers.normalization.batch_normalization']" in found_by_plain_keras_2
