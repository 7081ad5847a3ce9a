"""One valid trace of all ranks: what is in it, who may start it, and when it cannot be."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import tensorflow as tf

from smddp_tf.reduction import GradientReducer
from tests.timelines import lane, read

STEPS = 3
MANY = 250


@pytest.fixture
def folder(hvd) -> Iterator[Path]:
    """One for all ranks, which are on one host."""
    path = hvd.broadcast_object(tempfile.mkdtemp() if hvd.rank() == 0 else None)
    yield Path(path)
    hvd.barrier()
    if hvd.rank() == 0:
        for left in Path(path).iterdir():
            left.unlink() if not left.is_dir() or left.is_symlink() else left.rmdir()
        Path(path).rmdir()


def steps(key: str):
    """A training step with two gradients per bucket (of each dtype) and slices of it in flight together."""
    variables = [
        tf.Variable(tf.zeros([300, 40]), name="kernel"),
        tf.Variable(tf.zeros([7], tf.float64), name="bias"),
        tf.Variable(tf.zeros([50_000]), name="table"),
    ]
    reducer = GradientReducer(key)

    @tf.function
    def step(number):
        # Nothing orders the two: the gradients of both are under way at once.
        first = reducer([tf.ones_like(v) * tf.cast(number, v.dtype) for v in variables], variables)
        second = reducer([tf.ones_like(v) for v in variables], variables)
        return [tf.reduce_sum(tf.cast(g, tf.float64)) for g in first + second]

    return step


def test_every_rank_is_there_and_every_activity_ends(hvd, rank, size, folder):
    path = folder / "all.json"
    step = steps("timeline")
    step(tf.constant(1.0))
    hvd.start_timeline(path, mark_cycles=True)
    hvd.barrier(name="before")
    for number in range(STEPS):
        step(tf.constant(float(number)))
        hvd.allreduce(tf.ones([3]), name='small "one" ü')
    hvd.allreduce(tf.ones([100_000]), name="large")
    hvd.broadcast(tf.ones([10]), 0, name="sent")
    hvd.allgather(tf.ones([rank + 1]), name="gathered")
    with pytest.raises(ValueError, match="started already"):
        hvd.start_timeline(path)
    hvd.barrier(name="after")
    hvd.stop_timeline()
    hvd.stop_timeline()  # harmless
    hvd.barrier()
    give_up_at = time.monotonic() + 30  # a rank removes its part when rank 0 has said that it has it
    while len(list(folder.iterdir())) > 1 and time.monotonic() < give_up_at:
        time.sleep(0.01)
    assert sorted(p.name for p in folder.iterdir()) == ["all.json"]
    ranks = read(path)
    assert sorted(ranks) == list(range(size))
    nodes_of_rail = hvd.allgather(tf.constant([hvd.cross_size()])).numpy()
    for number, lanes in ranks.items():
        small = lane(lanes, 'small "one" ü')
        assert small.activities() == {"NEGOTIATE_ALLREDUCE", "ALLREDUCE", "MPI_ALLREDUCE"}
        assert len(small.spans) == 3 * STEPS
        assert lane(lanes, "sent").activities() == {"NEGOTIATE_BROADCAST", "BROADCAST", "MPI_BCAST"}
        assert lane(lanes, "gathered").activities() == {"NEGOTIATE_ALLGATHER", "ALLGATHER", "MPI_ALLGATHER"}
        inner = {name: (begin, end) for name, _, begin, end in lane(lanes, "large").spans}
        assert inner["ALLREDUCE"][0] <= inner["MPI_ALLREDUCE"][0] <= inner["MPI_ALLREDUCE"][1] <= inner["ALLREDUCE"][1]
        assert "CYCLE_START" in lanes[0].activities()
        if size == 1:
            continue  # one rank reduces nothing
        for name in ("kernel:0", "bias:0", "table:0"):
            gradient = [each for each in lanes.values() if each.name.split(" (")[0] == name]
            assert sum(len(each.spans) for each in gradient) == 2 * 3 * STEPS
            assert gradient[0].activities() == {"ALLREDUCE", "WAIT_FOR_OTHER_TENSOR_DATA", "MPI_ALLREDUCE"}
        buckets = [each for each in lanes.values() if "bucket" in each.name]
        assert {"ALLREDUCE", "QUEUE", "MPI_ALLREDUCE"} in [each.activities() for each in buckets]
        stages = {name for each in buckets for name in each.activities()}
        assert "NODE_REDUCE_SCATTER" in stages
        assert ("RAIL_ALLREDUCE" in stages) == (nodes_of_rail[number] > 1)
    if size > 1:
        # The clocks agree: nobody has the barrier's verdict before everybody has announced it.
        announced = [spans_of(ranks[r], "after", "NEGOTIATE_BARRIER")[0][2] for r in ranks]
        done = [spans_of(ranks[r], "after", "NEGOTIATE_BARRIER")[0][3] for r in ranks]
        assert max(announced) < min(done) + 2000  # microseconds, for the clocks of pretended nodes


def spans_of(lanes, name, activity):
    return [span for span in lane(lanes, name).spans if span[0] == activity]


def test_rank_0_alone_may_start_and_stop_it(hvd, rank, size, folder):
    """And where a part cannot be written it is kept in memory."""
    path = folder / "alone.json"
    if rank == 0:
        (folder / "alone.json.rank1.part").mkdir()
        path.write_text("what was there before " * 100)
        hvd.start_timeline(str(path))
    for _ in range(5):  # rank 0's word may come to a rank behind what it has told another
        hvd.barrier()
    hvd.allreduce(tf.ones([3]), name="seen")
    for number in range(MANY):  # more than one message holds
        hvd.barrier(name=f"many {number}")
    hvd.barrier()
    if rank == 0:
        hvd.stop_timeline()
    hvd.barrier()
    hvd.allreduce(tf.ones([3]), name="unseen")
    ranks = read(path)
    assert sorted(ranks) == list(range(size))
    for lanes in ranks.values():
        assert lane(lanes, "seen").spans
        names = [each.name for each in lanes.values()]
        assert [name for name in names if name.startswith("many")] == [f"many {number}" for number in range(MANY)]
        assert "unseen" not in names
        assert "CYCLE_START" not in lanes[0].activities()


def test_what_cannot_be_written(hvd, rank, folder):
    if rank == 0:
        kept = folder / "kept"
        kept.write_text("kept")
        link = folder / "link"
        link.symlink_to(kept)
        for bad in (link, folder, folder / "nowhere" / "file.json"):
            with pytest.raises(ValueError, match="cannot be written"):
                hvd.start_timeline(bad)
        assert kept.read_text() == "kept"
        hvd.start_timeline(folder / "good")  # the attempts have left nothing behind
        hvd.stop_timeline()
    hvd.barrier()


def test_the_variable_of_the_environment(hvd, rank, size, folder):
    path = folder / "variable.json"
    hvd.shutdown()
    with pytest.raises(ValueError, match="has not been initialized"):
        hvd.start_timeline(path)
    with pytest.raises(ValueError, match="has not been initialized"):
        hvd.stop_timeline()
    try:
        os.environ["HOROVOD_TIMELINE"] = str(path)
        os.environ["HOROVOD_TIMELINE_MARK_CYCLES"] = "1"
        hvd.init()
        with pytest.raises(ValueError, match="started already"):
            hvd.start_timeline(path)
        hvd.allreduce(tf.ones([3]), name="seen")
        hvd.shutdown()
        os.environ["HOROVOD_TIMELINE"] = "DYNAMIC"
        hvd.init()
    finally:
        del os.environ["HOROVOD_TIMELINE"], os.environ["HOROVOD_TIMELINE_MARK_CYCLES"]
    hvd.barrier()
    ranks = read(path)
    assert sorted(ranks) == list(range(size))
    assert all(lane(lanes, "seen").spans and "CYCLE_START" in lanes[0].activities() for lanes in ranks.values())
    hvd.barrier()  # all have read it
    if rank == 0:
        hvd.start_timeline(path)
        hvd.stop_timeline()
