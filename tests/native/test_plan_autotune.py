"""Autotune changes how gradients travel while steps run; all ranks change alike and the sums do not change."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from smddp_tf import _loader
from tests.native.layouts import LAYOUTS

_core = _loader.core()

ELEMENTS = [700, 1, 2500, 0, 300, 1200, 40, 1024, 6000]
TENSORS = len(ELEMENTS)
BUCKET_BYTES = 8192
STEPS = 150  # more than tuning needs
TUNED = ("bucket_bytes", "chunk_bytes", "in_flight", "algorithm", "steps")

over_layouts = pytest.mark.parametrize("layout", ["2", "4", "1+1", "2+1", "2+2", "1+1+1+1"])


def whole_numbers(ranks: int, plans: int = 1) -> np.ndarray:
    """Different for every rank, step and place; their sums are exact."""
    place = np.arange(STEPS * plans * sum(ELEMENTS)).reshape(STEPS, -1)
    return np.stack([(place * 7 + rank * 13) % 1009 for rank in range(ranks)]).astype(np.float32)


def step_by_step(rng: np.random.Generator, ranks: int, plans: int = 1) -> list[list[int]]:
    return [np.concatenate([rng.permutation(plans * TENSORS) for _ in range(STEPS)]).tolist() for _ in range(ranks)]


def run(layout: str, data: np.ndarray, sequences: list[list[int]], **options):
    defaults = {"plans": 1, "wait_every": TENSORS, "pause_us": 0, "seed": 0, "gradient_order": "observed"}
    result = data.copy()
    diaries = _core.cluster_steps(
        hosts=LAYOUTS[layout], elements=ELEMENTS, data=[of_rank.reshape(-1) for of_rank in result],
        sequences=sequences, bucket_bytes=BUCKET_BYTES, **{**defaults, "autotune": True, **options},
    )  # fmt: skip
    return result, diaries


def epochs(diary: list[tuple[str, str, int]], plan: int = 0) -> list[tuple[int, ...]]:
    """What was told, epoch by epoch, in the order of TUNED."""
    columns = [[i for event, name, i in diary if (event, name) == (f"tuned_{what}", f"steps {plan}")] for what in TUNED]
    return list(zip(*columns, strict=True))


def check_sums(result: np.ndarray, data: np.ndarray) -> None:
    expected = data.sum(axis=0)
    for rank, of_rank in enumerate(result):
        np.testing.assert_array_equal(of_rank, expected, err_msg=f"rank {rank}")


def check_epochs(diaries: list[list[tuple[str, str, int]]], plan: int = 0) -> None:
    told = epochs(diaries[0], plan)
    assert len({settings[:-1] for settings in told}) > 3, "several settings were tried"
    assert [steps for *_, steps in told[:-1]] == [8] * (len(told) - 1)
    assert told[-1][-1] == 0, "it has ended"
    for rank, diary in enumerate(diaries):
        assert epochs(diary, plan) == told, f"rank {rank}"


@over_layouts
def test_sums_while_it_tunes(layout: str) -> None:
    ranks = len(LAYOUTS[layout])
    for seed in range(2):
        data = whole_numbers(ranks)
        sequences = step_by_step(np.random.default_rng(seed), ranks)
        result, diaries = run(layout, data, sequences, pause_us=40 * seed, seed=seed)
        check_sums(result, data)
        check_epochs(diaries)
        started = [[i for what, _, i in diary if what == "bucket_start"] for diary in diaries]
        assert len({len(of_rank) for of_rank in started}) == 1, "all ranks reduced as many buckets"


@pytest.mark.parametrize("layout", ["2", "2+2"])
@pytest.mark.parametrize("gradient_order", ["observed", "listed"])
def test_several_plans(layout: str, gradient_order: str) -> None:
    ranks, plans = len(LAYOUTS[layout]), 3
    for wait_every in (0, plans * TENSORS):
        data = whole_numbers(ranks, plans)
        sequences = step_by_step(np.random.default_rng(wait_every), ranks, plans)
        result, diaries = run(
            layout, data, sequences, plans=plans, wait_every=wait_every, gradient_order=gradient_order
        )
        check_sums(result, data)
        for plan in range(plans):
            check_epochs(diaries, plan)


@pytest.mark.parametrize("rail_algorithm", ["auto", "direct", "ring", "halving_doubling"])
@pytest.mark.parametrize("layout", ["2", "4", "1+4+2", "1+1+1+1", "2+2+2+2"])
def test_the_bits_are_those_without_autotune(layout: str, rail_algorithm: str) -> None:
    ranks = len(LAYOUTS[layout])
    data = np.random.default_rng(3).standard_normal((ranks, STEPS, sum(ELEMENTS))).astype(np.float32)
    results = []
    for seed, autotune, order in ((1, False, "listed"), (2, True, "listed"), (3, True, "observed")):
        sequences = step_by_step(np.random.default_rng(seed), ranks)
        result, _ = run(
            layout, data, sequences, seed=seed, gradient_order=order, rail_algorithm=rail_algorithm, autotune=autotune
        )
        results.append(result)
    for result in results:
        assert all(of_rank.tobytes() == results[0][0].tobytes() for of_rank in result)


def test_off_tells_no_settings() -> None:
    data = whole_numbers(2)
    result, diaries = run("2", data, step_by_step(np.random.default_rng(0), 2), autotune=False)
    check_sums(result, data)
    assert all(epochs(diary) == [] for diary in diaries)


def read_log(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_log_says_what_was_tried_and_kept(tmp_path: Path) -> None:
    log = tmp_path / "tune.csv"
    data = whole_numbers(4)
    _, diaries = run("1+1+1+1", data, step_by_step(np.random.default_rng(0), 4), autotune_log=str(log))
    rows = read_log(log)
    assert [int(row["trial"]) for row in rows] == list(range(len(rows)))
    assert [row["phase"] for row in rows[:3]] == ["warm-up", "default", "candidate"]
    assert (rows[-1]["phase"], rows[-1]["chosen"]) == ("decided", "1")
    told = [settings[:3] for settings in epochs(diaries[0])]
    columns = ("bucket_bytes", "chunk_bytes", "chunks_in_flight")
    assert [tuple(int(row[column]) for column in columns) for row in rows] == told
    algorithms = {row["algorithm"] for row in rows}
    assert algorithms == {"auto", "direct", "recursive_doubling", "halving_doubling"}
    assert all(float(row["median_us"]) > 0 for row in rows)
    _, again = run("2", whole_numbers(2), step_by_step(np.random.default_rng(0), 2), autotune_log=str(log))
    assert len(read_log(log)) == len(rows) + len(epochs(again[0])), "a second session appends"


@pytest.mark.parametrize("kind", ["symbolic link", "hard link", "folder", "missing folder"])
def test_the_log_is_not_written_through_links(tmp_path: Path, kind: str, capfd: pytest.CaptureFixture) -> None:
    target = tmp_path / "precious"
    target.write_text("mine")
    log = tmp_path / ("none/log.csv" if kind == "missing folder" else "log.csv")
    if kind == "symbolic link":
        log.symlink_to(target)
    elif kind == "hard link":
        log.hardlink_to(target)
    elif kind == "folder":
        log.mkdir()
    data = whole_numbers(2)
    result, _ = run("2", data, step_by_step(np.random.default_rng(0), 2), autotune_log=str(log))
    check_sums(result, data)
    assert target.read_text() == "mine"
    assert capfd.readouterr().err.count(f"SMDDP_AUTOTUNE_LOG: cannot write '{log}'") == 1
