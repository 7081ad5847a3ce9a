"""SMDDP_AUTOTUNE=1 in a training job: it ends, writes its log, changes no weight, and fails when a rank leaves."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from tests.launch.mpirun import SCRIPTS, launch
from tests.launch.scripts.recorder import read_records

RANKS = 2
STEPS = 160  # more than tuning needs
SMALL = {"SMDDP_BUCKET_BYTES": "16KB", "SMDDP_CHUNK_BYTES": "8KB"}  # several buckets of several chunks


def train(folder: Path, steps: tuple[int, int], env: dict[str, str]) -> list[np.ndarray]:
    folder.mkdir()
    launch([SCRIPTS / "train_tuned.py", folder, *map(str, steps)], RANKS, timeout=120, env=SMALL | env).check()
    return [np.load(folder / f"weights_{rank}.npy") for rank in range(RANKS)]


@pytest.fixture(scope="module")
def untuned(tmp_path_factory: pytest.TempPathFactory) -> list[np.ndarray]:
    return train(tmp_path_factory.mktemp("untuned") / "run", (STEPS, STEPS), {"HOROVOD_AUTOTUNE": "0"})


@pytest.mark.parametrize("prefix", ["SMDDP", "HOROVOD"])
def test_the_weights_are_those_without_autotune(prefix: str, untuned: list[np.ndarray], tmp_path: Path) -> None:
    log = tmp_path / "tune.csv"
    env = {f"{prefix}_AUTOTUNE": "1", f"{prefix}_AUTOTUNE_LOG": str(log)}
    weights = train(tmp_path / "run", (STEPS, STEPS), env)
    for rank in range(RANKS):
        assert weights[rank].tobytes() == untuned[0].tobytes(), f"rank {rank}"
        assert np.isfinite(weights[rank]).all()
    assert not [record for record in read_records(tmp_path / "run", RANKS) if record["train"].get("error")]
    with log.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows[0]["phase"] == "warm-up"
    assert rows[-1]["phase"] == "decided"
    assert len({(row["bucket_bytes"], row["chunk_bytes"], row["chunks_in_flight"]) for row in rows}) > 3


def test_a_rank_that_leaves_while_it_tunes_is_an_error_and_no_hang(tmp_path: Path) -> None:
    train(tmp_path / "run", (STEPS, 21), {"SMDDP_AUTOTUNE": "1"})
    left_behind = read_records(tmp_path / "run", RANKS)[0]["train"]
    assert "has ended its session" in str(left_behind)
