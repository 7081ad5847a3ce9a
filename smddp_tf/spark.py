"""Ranks that are tasks of Spark: `run(fn)` of `horovod.spark`, and Databricks's `HorovodRunner`.

Needs pyspark, which is imported when a job is started. Each task of a barrier stage starts one process, the rank, and
ends with it: what a function has loaded, and devices that it holds, do not stay with Spark's own workers.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from smddp_tf import aliases
from smddp_tf.exceptions import LaunchError
from smddp_tf.lifecycle import assigned, uncaught
from smddp_tf.run.launch import function
from smddp_tf.run.rank import processes, task

__all__ = ["HorovodRunner", "run"]


def run(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    num_proc: int | None = None,
    start_timeout: int = 300,
    env: Mapping[str, str] | None = None,
    **without_effect: object,
) -> list[Any]:
    """Calls `fn(*args, **kwargs)` on every rank of a new job, each in a task of one barrier stage.

    The function is pickled by cloudpickle; it calls `hvd.init()` itself. What ranks print is in the executors' logs.
    Ranks on one host are neighbours. Spark must have a free slot for each rank; it tries for ten minutes.

    Args:
        fn: what every rank calls.
        args, kwargs: its arguments, the same for all ranks.
        num_proc: number of ranks. Defaults to `SparkContext.defaultParallelism`.
        start_timeout: seconds within which all ranks must have called `hvd.init()`.
        env: more variables for the ranks.
        without_effect: Horovod's other arguments, `verbose` for example.

    Returns:
        A list with the result of each rank, by rank.

    Raises:
        ImportError: pyspark is not installed.
        LaunchError: there is no active SparkContext, or a rank has failed; names the rank, with its traceback.
    """
    try:
        from pyspark import SparkContext
    except ImportError as error:
        raise ImportError("smddp_tf.spark needs Spark: pip install pyspark (and Java 17 or later)") from error
    context = SparkContext._active_spark_context
    if context is None:
        raise LaunchError("There is no active SparkContext. Expected: SparkSession.builder.getOrCreate() before.")
    shared = {**assigned.variables_of_job(start_timeout), **(env or {})}
    payload, ranks = function.payload_of(fn, args, kwargs or {}), num_proc or context.defaultParallelism
    stage = context.parallelize(range(ranks), ranks).barrier()
    try:
        answers = dict(stage.mapPartitions(lambda _: _run_rank(payload, shared)).collect())
    except Exception as error:  # Spark's, with that of the task in its text, and the stacks of both
        said = str(error).partition("LaunchError: ")[2].partition("\n\tat ")[0]
        raise LaunchError(said.partition("SQLSTATE")[0].strip() or str(error)) from error
    return [pickle.loads(answers[rank]) for rank in range(ranks)]


class HorovodRunner:
    """Databricks's form of the same: `HorovodRunner(np=2).run(main, learning_rate=0.1)`.

    Args:
        np: number of ranks, in tasks of Spark; 0: `SparkContext.defaultParallelism`; -N: N processes on the driver,
            without Spark (`smddp_tf.run.run`).
        driver_log_verbosity: nothing.
    """

    def __init__(self, *, np: int, driver_log_verbosity: str = "log_callback_only") -> None:
        self.num_processor = np

    def run(self, main: Callable[..., Any], **kwargs: Any) -> Any:
        """Calls `main(**kwargs)` on every rank.

        Args:
            main: what every rank calls.
            **kwargs: its arguments.

        Returns:
            What it has returned on rank 0. Raises as `run`.
        """
        start = function.run if self.num_processor < 0 else run
        return start(main, kwargs=kwargs, num_proc=abs(self.num_processor))[0]


def _run_rank(payload: bytes, shared: Mapping[str, str]) -> Iterator[tuple[int, bytes]]:
    """A task: agrees with the others on the ranks, and yields its own and the pickled result."""
    from pyspark import BarrierTaskContext

    context = BarrierTaskContext.get()
    number, gpus = context.partitionId(), context.resources().get("gpu")
    host = context.getTaskInfos()[number].address.rpartition(":")[0]
    said = context.allGather(json.dumps(assigned.place(host, gpus.addresses if gpus else ())))
    mine = assigned.variables_of_ranks([json.loads(text) for text in said])[number]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    assigned.take_place(environment, {**shared, **mine})
    words = processes.isolated("smddp_tf.spark", sys.executable)
    ended = subprocess.run(words, input=payload, stdout=subprocess.PIPE, env=environment, check=False)
    nothing = pickle.dumps((f"exit code {ended.returncode}, without a result", False, b""))
    failed, because_of_another, answer = pickle.loads(ended.stdout or nothing)
    if failed:
        # A rank that another one's failure has ended lets that one end the stage. Spark then ends this task.
        time.sleep(assigned.CAUSE_SECONDS if because_of_another else 0)
        raise LaunchError(f"rank {mine['RANK']} of {len(said)} on {host} has failed: {failed}")
    yield int(mine["RANK"]), answer


def main() -> None:
    """A rank: calls the function that it reads from standard input, and writes what became of it."""
    processes.end_with_parent(signal.SIGKILL)
    aliases.install_inherited()
    with open(os.dup(1), "wb") as pipe:
        os.dup2(2, 1)  # what the function prints
        try:
            pickle.dump(("", False, task.sendable(task.call(sys.stdin.buffer.read()))), pipe)
        except (Exception, SystemExit) as error:
            pickle.dump((traceback.format_exc(), uncaught.is_consequence(error), b""), pipe)
            raise
