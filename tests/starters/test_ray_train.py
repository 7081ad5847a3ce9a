"""Ray Train with `SmddpConfig` on this host. Run by `make test-starters`."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.starters import training

ray = pytest.importorskip("ray", reason="needs the environment of `make test-starters`")

from ray.train import Checkpoint, RunConfig, ScalingConfig, WorkerGroupError, get_context, report  # noqa: E402
from ray.train.tensorflow import TensorflowTrainer  # noqa: E402

from smddp_tf.ray.train import SmddpConfig  # noqa: E402


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def alone() -> list[np.ndarray]:
    return training.alone()


def fit(loop: Any, folder: Path, **config: Any) -> Any:
    """What Ray Train gives back after two workers have run the loop."""
    trainer = TensorflowTrainer(
        loop, train_loop_config={"folder": str(folder), **config}, tensorflow_config=SmddpConfig(),
        scaling_config=ScalingConfig(num_workers=2), run_config=RunConfig(storage_path=str(folder / "storage")),
    )  # fmt: skip
    return trainer.fit()


def with_optimizer(config: dict[str, Any]) -> None:
    """Reports each epoch, with a checkpoint of rank 0."""
    answer = training.train(config["folder"], config.get("fails", -1), config.get("how", ""))
    context = get_context()
    numbers = (context.get_world_rank(), context.get_world_size(), context.get_local_rank())
    assert answer["numbers"][:3] == numbers
    with tempfile.TemporaryDirectory() as folder:
        np.savez(f"{folder}/weights.npz", *answer["weights"])
        checkpoint = Checkpoint.from_directory(folder) if numbers[0] == 0 else None
        report({"rank": numbers[0], "told": answer["told"]}, checkpoint=checkpoint)


def with_distribution(config: dict[str, Any]) -> None:
    """The same under `keras.distribution`, on whole batches."""
    import keras

    import smddp_tf.keras.distribution  # noqa: F401

    keras.distribution.set_distribution(keras.distribution.DataParallel())
    model = training.compiled(keras.optimizers.SGD(0.02, 0.9))
    training.fit(model, 0, 1)
    with tempfile.TemporaryDirectory() as folder:
        np.savez(f"{folder}/weights.npz", *model.get_weights())
        report({"rank": get_context().get_world_rank(), "told": False}, checkpoint=Checkpoint.from_directory(folder))


@pytest.mark.parametrize("loop", [with_optimizer, with_distribution])
def test_it_trains_as_one_process(loop: Any, alone: list[np.ndarray], tmp_path: Path) -> None:
    result = fit(loop, tmp_path)
    assert result.error is None
    assert result.metrics == {"rank": 0, "told": False}
    with result.checkpoint.as_directory() as folder, np.load(f"{folder}/weights.npz") as saved:
        for name, wanted in zip(saved.files, alone, strict=True):
            np.testing.assert_allclose(saved[name], wanted, rtol=1e-6)
    if loop is with_optimizer:
        training.check_ended(tmp_path)


@pytest.mark.parametrize("how", ["early", "late"])
def test_a_rank_that_fails_is_named(how: str, tmp_path: Path) -> None:
    begun = time.monotonic()
    with pytest.raises(WorkerGroupError) as raised:
        fit(with_optimizer, tmp_path, fails=1, how=how)
    assert time.monotonic() - begun < training.SOON
    assert "rank 1 is broken" in str(raised.value.worker_failures[1])
    training.check_ended(tmp_path, 1)
