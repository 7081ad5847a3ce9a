"""`spark.run` and `HorovodRunner` on this host, with two executors of one slot each. Run by `make test-starters`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from smddp_tf.exceptions import LaunchError
from tests.starters import training

pyspark = pytest.importorskip("pyspark", reason="needs the environment of `make test-starters`")

from smddp_tf import spark  # noqa: E402

pytestmark = pytest.mark.skipif(
    shutil.which("java") is None and "JAVA_HOME" not in os.environ,
    reason="Spark needs a Java: apt-get install openjdk-17-jre-headless",
)


@pytest.fixture(scope="module", autouse=True)
def session() -> Iterator[Any]:
    from pyspark.sql import SparkSession

    master = SparkSession.builder.master("local-cluster[2,1,1024]")
    session = master.config("spark.ui.enabled", "false").getOrCreate()
    yield session
    session.stop()


@pytest.fixture(scope="module")
def alone() -> list[np.ndarray]:
    return training.alone()


def test_it_trains_as_one_process(alone: list[np.ndarray], tmp_path: Path) -> None:
    answers = spark.run(training.train, args=(str(tmp_path),), num_proc=2, env={"GIVEN": "yes"}, verbose=0)
    training.check_trained(answers, alone)
    assert [answer["variables"]["GIVEN"] for answer in answers] == ["yes", "yes"]
    training.check_ended(tmp_path)
    training.check_trained(spark.run(training.train), alone)  # as many ranks as slots


@pytest.mark.parametrize(
    ("fails", "how", "says"),
    [
        (0, "late", "ValueError: rank 0 is broken"),
        (1, "late", "ValueError: rank 1 is broken"),
        (1, "early", "ValueError: rank 1 is broken"),
        (0, "killed", "exit code -9, without a result"),
        (1, "exits", "SystemExit: 7"),
    ],
)
def test_a_rank_that_fails_is_named(tmp_path: Path, fails: int, how: str, says: str) -> None:
    begun = time.monotonic()
    with pytest.raises(LaunchError) as raised:
        spark.run(training.train, (str(tmp_path), fails, how), num_proc=2)
    assert time.monotonic() - begun < training.SOON
    assert re.match(rf"rank {fails} of 2 on [\w.-]+ has failed: ", str(raised.value))
    assert str(raised.value).endswith(says)
    training.check_ended(tmp_path, fails)


def test_the_runner(alone: list[np.ndarray]) -> None:
    answer = spark.HorovodRunner(np=2).run(training.train)
    assert answer["numbers"] == (0, 2, 0, 2, False)
    for found, wanted in zip(answer["weights"], alone, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
    with pytest.raises(LaunchError, match=r"rank 1 of 2 on .* has failed"):
        spark.HorovodRunner(np=2).run(training.train, fails=1)


def test_the_runner_on_the_driver() -> None:
    def numbers(base: int) -> tuple[int, int]:
        import smddp_tf as hvd

        hvd.init()
        return base + hvd.rank(), hvd.size()

    assert spark.HorovodRunner(np=-2).run(numbers, base=5) == (5, 2)


def test_each_rank_reads_its_share_of_parquet(session: Any, tmp_path: Path) -> None:
    session.range(100).repartition(3).write.parquet(str(tmp_path / "numbers"))
    first, second = spark.run(training.read_parquet, args=(str(tmp_path / "numbers"),), num_proc=2)
    assert sorted([*first, *second]) == list(range(100))
    assert 20 < len(second) < len(first)  # one file and two


def test_horovods_example(session: Any) -> None:
    session.stop()  # the example starts its own
    file = Path(__file__).with_name("horovod_examples.py")
    words = [sys.executable, "-m", "smddp_tf.aliases", "horovod", file, "spark"]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "trained [" in ended.stdout
