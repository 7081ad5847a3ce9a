"""One rank: runs one case after the other, all ranks the same. Started by `__main__.py` under mpirun."""

from __future__ import annotations

import argparse
import dataclasses
import gc
import os
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

from mpi4py import MPI

from tests.agreement import Agreement, RanksMissing
from tests.mpi_plugin import EXIT_STUCK, Watchdog
from tests.random import exclusions
from tests.random.case import Case, altered, draw

DEADLINE_SECONDS = 150.0
PATIENCE_SECONDS = 40.0  # for the other ranks after one has raised
SHRINK_SECONDS = 90.0


@dataclasses.dataclass
class Job:
    """The ranks of this job, and what they have found."""

    agreement: Agreement
    watchdog: Watchdog
    nodes: list[int]
    nodes_text: str
    findings: int = 0
    impossible: int = 0

    def say(self, text: str) -> None:
        """On rank 0 only."""
        if self.agreement.rank == 0:
            print(text, flush=True)


def main() -> None:
    asked = _parsed()
    world = MPI.COMM_WORLD
    rank, size = world.Get_rank(), world.Get_size()
    nodes = [int(part) for part in asked.nodes.split(",")] if asked.nodes else [size]
    if asked.nodes:
        node = next(i for i in range(len(nodes)) if rank < sum(nodes[: i + 1]))
        os.environ["SMDDP_HOST_ID"] = f"pretended-node-{node}"
    job = Job(Agreement(world), Watchdog(rank), nodes, asked.nodes)
    _start()
    end = time.monotonic() + asked.seconds
    number, done = asked.first, 0
    while True:
        time_is_up = asked.case is None and done > 0 and time.monotonic() > end
        if any(job.agreement.exchange(time_is_up or (asked.count and done >= asked.count), DEADLINE_SECONDS)):
            break
        _write_progress(asked.progress, rank, number if asked.case is None else asked.case, job)
        drawn = draw(asked.seed, number if asked.case is None else asked.case, size, nodes)
        _examine(job, drawn, altered(drawn, asked.with_), asked.shrink, asked.verbose)
        number, done = number + 1, done + 1
        if asked.case is not None:
            break
    job.say(f"{done} cases, {job.findings} findings, {job.impossible} impossible in one process")
    sys.exit(1 if job.findings else 0)


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int)
    parser.add_argument("--case", type=int)
    parser.add_argument("--with", dest="with_", nargs="*", default=[])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--nodes", default="")
    parser.add_argument("--shrink", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--progress", type=Path)
    return parser.parse_args()


def _start() -> None:
    """TensorFlow and the job's communication, once for all cases."""
    import keras
    import tensorflow as tf

    import smddp_tf.keras as hvk
    import smddp_tf.keras.distribution  # noqa: F401  (fills in keras.distribution)

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(2)
    warnings.simplefilter("ignore")
    tf.get_logger().setLevel("ERROR")
    hvk.init()
    keras.utils.set_random_seed(1)
    keras.distribution.initialize()


def _write_progress(path: Path | None, rank: int, number: int, job: Job) -> None:
    if path is not None and rank == 0:
        path.write_text(f"{number} {job.findings} {job.impossible}", encoding="utf-8")


def _examine(job: Job, drawn: Case, case: Case, shrink: bool, verbose: bool) -> None:
    """Runs a case, and where it is wrong, simpler ones."""
    begin = time.monotonic()
    found = _run(job, drawn, case)
    if verbose:
        job.say(f"[{time.monotonic() - begin:.1f} s] {case.number}: {case}")
    if not found:
        return
    job.findings += 1
    replay = case.replay(drawn, job.agreement.size, job.nodes_text)
    job.say(f"FINDING  {replay}\n  {case}\n  " + "\n  ".join(found[:12]))
    if shrink:
        case = _shrunk(job, drawn, case)
        replay = case.replay(drawn, job.agreement.size, job.nodes_text)
        job.say(f"SMALLEST {replay}\n  {case}\n  " + "\n  ".join(_run(job, drawn, case)[:6]))


def _shrunk(job: Job, drawn: Case, case: Case) -> Case:
    """Goes back to the default of one field after the other, as long as the ranks are still wrong."""
    end = time.monotonic() + SHRINK_SECONDS
    for name in case.changed():
        default = next(field.default for field in dataclasses.fields(case) if field.name == name)
        simpler = dataclasses.replace(case, **{name: default})
        size, nodes = job.agreement.size, job.nodes
        if set(exclusions.of(simpler, size, nodes)) - set(exclusions.of(case, size, nodes)):
            continue
        if any(job.agreement.exchange(time.monotonic() > end, DEADLINE_SECONDS)):
            break
        if _run(job, drawn, simpler):
            case = simpler
    return case


def _run(job: Job, drawn: Case, case: Case) -> list[str]:
    """What is wrong with the case on any rank; ends the job where a rank does not come back."""
    replay = case.replay(drawn, job.agreement.size, job.nodes_text)
    job.watchdog.start(f"HANGS: {replay}\n  {case}", DEADLINE_SECONDS)
    try:
        mine, fingerprint = _outcome_of(job, case)
        patience = PATIENCE_SECONDS if mine else DEADLINE_SECONDS * 2
        everybody = job.agreement.exchange((mine, fingerprint), patience)
    except RanksMissing as missing:
        job.watchdog.say(f"FINDING  {replay}\n  {case}\n  rank {job.agreement.rank}: {mine}; {missing}")
        os._exit(EXIT_STUCK)
    finally:
        job.watchdog.stop()
    if any(found == [_IMPOSSIBLE] for found, _ in everybody):
        job.impossible += 1
        return []
    from tests.random import comparison

    lines = [f"rank {rank}: {line}" for rank, (found, _) in enumerate(everybody) for line in found]
    prints = [fingerprint for _, fingerprint in everybody]
    return lines + (comparison.apart(prints) if all(prints) else [])


_IMPOSSIBLE = "one process cannot"


def _outcome_of(job: Job, case: Case) -> tuple[list[str], dict[str, str]]:
    """The differences on this rank, and a fingerprint of what must be equal on all."""
    import keras

    from tests.random import alone, comparison, data, ways

    rank, size = job.agreement.rank, job.agreement.size
    keras.config.set_floatx("float32" if case.floats == "float32" else "float64")
    try:
        plan = data.plan_of(case, size)
        rows = data.rows_of(case, plan)

        def distributed() -> Any:
            return ways.train(case, plan, rows, rank, size)

        try:
            expected = distributed() if case.shuffled else alone.train(case, plan, rows, size)
        except Exception:  # whatever Keras says
            if case.shuffled:
                raise
            if rank == 0:
                print(f"impossible: {case.number}: {case}\n{traceback.format_exc()[-1500:]}", flush=True)
            return [_IMPOSSIBLE], {}
        got = distributed()
        if case.norm == "bn":
            expected = alone.use(case, plan, rows, got)
        return comparison.differences(case, got, expected), comparison.fingerprint(got)
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        text = f"raised {type(error).__name__} at {Path(place.filename).name}:{place.lineno}: {str(error)[-700:]}"
        if os.environ.get("SMDDP_TEST_TRACEBACKS"):
            text += traceback.format_exc()
        return [text], {}
    finally:
        keras.config.set_floatx("float32")
        keras.utils.clear_session()
        gc.collect()


if __name__ == "__main__":
    try:
        main()
    except SystemExit:
        raise
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
