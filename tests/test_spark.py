"""What Spark's ranks do without Spark: the process of a task, and the errors; with Spark: tests/starters."""

from __future__ import annotations

import json
import os
import pickle
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from smddp_tf import spark
from smddp_tf.exceptions import LaunchError
from smddp_tf.run.launch.function import payload_of


def a_task(monkeypatch: pytest.MonkeyPatch, number: int, function: Any, *args: Any) -> list[tuple[int, Any]]:
    """What task `number` of two yields, the other one being on another host."""
    hosts = [f"10.0.0.{1 + (number != each)}:7077" for each in range(2)]

    def all_gather(mine: str) -> list[str]:
        other = ["10.0.0.2", 402, "secret of the other", ["5"]]
        return [mine if each == number else json.dumps(other) for each in range(2)]

    context = SimpleNamespace(
        partitionId=lambda: number,
        getTaskInfos=lambda: [SimpleNamespace(address=host) for host in hosts],
        resources=lambda: {"gpu": SimpleNamespace(addresses=["3"])},
        allGather=all_gather,
    )
    pyspark: Any = ModuleType("pyspark")
    pyspark.BarrierTaskContext = SimpleNamespace(get=lambda: context)
    monkeypatch.setitem(sys.modules, "pyspark", pyspark)
    answers = list(spark._run_rank(payload_of(function, args, {}), {"GIVEN": "yes"}))
    return [(rank, pickle.loads(answer)) for rank, answer in answers]


def test_a_rank_is_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def tell(*names: str) -> tuple[int, list[str | None]]:
        print("not a part of the answer")
        return os.getppid(), [os.environ.get(name) for name in names]

    names = ("SMDDP_RANK", "SMDDP_COORDINATOR", "SMDDP_SECRET", "CUDA_VISIBLE_DEVICES", "GIVEN", "TF_CONFIG")
    monkeypatch.setenv("TF_CONFIG", "of another job")
    assert a_task(monkeypatch, 1, tell, *names) == [
        (1, (os.getpid(), ["1", "10.0.0.2:402", "secret of the other", "3", "yes", None]))
    ]
    ((rank, (_, found)),) = a_task(monkeypatch, 0, tell, *names)
    assert (rank, found[0], found[3]) == (0, "0", "3")
    assert found[1].startswith("10.0.0.1:")


def broken() -> None:
    raise ValueError("this one")


def lost() -> None:
    error = RuntimeError("Rank 0 has left [smddp:peer_left]")
    raise ValueError("in a callback") from error


def test_a_rank_that_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    slept = list[float]()
    monkeypatch.setattr(spark.time, "sleep", slept.append)
    for function, says in (
        (broken, r"(?s)rank 1 of 2 on 10.0.0.1 has failed: Traceback.*ValueError: this one$"),
        (lambda: os._exit(5), "rank 1 of 2 on 10.0.0.1 has failed: exit code 5, without a result"),
        (lambda: sys.exit("no data"), "(?s)rank 1 of 2 on 10.0.0.1 has failed: .*SystemExit: no data"),
        (lost, r"(?s)rank 1 of 2 .*peer_left.*ValueError: in a callback"),
    ):
        with pytest.raises(LaunchError, match=says):
            a_task(monkeypatch, 1, function)
    assert slept == [0, 0, 0, 15]  # the rank that was the reason is to be named


def test_without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    for start in (spark.run, spark.HorovodRunner(np=2).run):
        with pytest.raises(ImportError, match="pip install pyspark"):
            start(print)
    pyspark: Any = ModuleType("pyspark")
    pyspark.SparkContext = SimpleNamespace(_active_spark_context=None)
    monkeypatch.setitem(sys.modules, "pyspark", pyspark)
    with pytest.raises(LaunchError, match="no active SparkContext"):
        spark.run(print)


def test_ranks_on_the_driver_need_no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(spark.function, "run", lambda main, **given: asked.append((main, given)) or ["first", "other"])
    assert spark.HorovodRunner(np=-2).run(print, end="x") == "first"
    assert asked == [(print, {"kwargs": {"end": "x"}, "num_proc": 2})]
