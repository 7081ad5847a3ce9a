"""`RayExecutor` and Ray Train on this host. Run by `make test-starters`."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from smddp_tf.exceptions import LaunchError
from smddp_tf.run.launch.function import RankError
from tests.starters import training

ray = pytest.importorskip("ray", reason="needs the environment of `make test-starters`")

from smddp_tf.ray import RayExecutor  # noqa: E402
from smddp_tf.run import run  # noqa: E402


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    ray.init(num_cpus=4, num_gpus=4, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def alone() -> list[np.ndarray]:
    return training.alone()


@pytest.fixture
def executor() -> Iterator[RayExecutor]:
    executor = RayExecutor(RayExecutor.create_settings(timeout_s=100), num_workers=2)
    executor.start()
    yield executor
    executor.shutdown()


def test_it_trains_as_one_process(executor: RayExecutor, alone: list[np.ndarray], tmp_path: Path) -> None:
    training.check_trained(executor.run(training.train, args=[str(tmp_path)]), alone)
    training.check_trained(executor.run(training.train), alone)  # the same ranks once more
    executor.shutdown()
    training.check_ended(tmp_path)
    with pytest.raises(LaunchError, match="call `start` first"):
        executor.run(training.train)


@pytest.mark.parametrize("fails", [0, 1])
@pytest.mark.parametrize("how", ["early", "late"])
def test_a_rank_that_fails_is_named(executor: RayExecutor, tmp_path: Path, fails: int, how: str) -> None:
    begun = time.monotonic()
    with pytest.raises(ValueError, match=f"rank {fails} is broken") as raised:
        executor.run(training.train, kwargs={"folder": str(tmp_path), "fails": fails, "how": how})
    assert time.monotonic() - begun < training.SOON
    assert isinstance(raised.value.__cause__, RankError)
    assert raised.value.__cause__.rank == fails
    assert "in train" in raised.value.__cause__.text
    executor.shutdown()
    training.check_ended(tmp_path, fails)


def test_ranks_train_again_after_one_has_failed(executor: RayExecutor, alone: list[np.ndarray]) -> None:
    with pytest.raises(ValueError, match="rank 1 is broken"):
        executor.run(training.train, kwargs={"fails": 1})
    training.check_trained(executor.run(training.train), alone)


def test_a_rank_that_is_killed_is_named(executor: RayExecutor, tmp_path: Path) -> None:
    with pytest.raises(ray.exceptions.RayActorError) as raised:
        executor.run(training.train, args=[str(tmp_path), 0, "killed"])
    assert raised.value.__cause__.rank == 0
    executor.shutdown()
    training.check_ended(tmp_path)


def test_ranks_of_a_host_see_all_its_gpus() -> None:
    """Ray's own numbers of GPUs that this machine does not have."""
    executor = RayExecutor(num_hosts=1, num_workers_per_host=2, use_gpu=True, gpus_per_worker=2)
    executor.start()
    try:
        own = executor.run(lambda: [str(gpu) for gpu in ray.get_gpu_ids()])
        seen = executor.run(lambda: os.environ["CUDA_VISIBLE_DEVICES"])
    finally:
        executor.shutdown()
    assert len({*own[0], *own[1]}) == 4
    assert seen == [",".join([*own[0], *own[1]])] * 2


def test_what_ray_has_no_room_for() -> None:
    settings = RayExecutor.create_settings(placement_group_timeout_s=1)
    executor = RayExecutor(settings, num_hosts=2, num_workers_per_host=2)
    with pytest.raises(LaunchError, match=r"no room for 2 x \{'CPU': 2, 'GPU': 0\} \(STRICT_SPREAD\)"):
        executor.start()
    until = time.monotonic() + 10
    while ray.available_resources().get("CPU") != 4:
        assert time.monotonic() < until
        time.sleep(0.1)


def test_horovods_example() -> None:
    words = [
        sys.executable,
        "-m",
        "smddp_tf.aliases",
        "horovod",
        Path(__file__).with_name("horovod_examples.py"),
        "ray",
    ]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "trained [" in ended.stdout


def test_ray_names_the_hosts_of_a_job_that_grows() -> None:
    """As docs/elastic.md has it."""

    def hosts() -> dict[str, int]:
        return {node["NodeManagerAddress"]: int(node["Resources"]["CPU"]) // 2 for node in ray.nodes() if node["Alive"]}

    def ranks() -> tuple[int, int]:
        import smddp_tf as hvd

        hvd.init()
        return hvd.rank(), hvd.size()

    assert run(ranks, use_gloo=True, num_proc=2, host_discovery_script=hosts) == [(0, 2), (1, 2)]
