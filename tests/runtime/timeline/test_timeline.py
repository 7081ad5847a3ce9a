"""One valid trace of all ranks: what is in it, who may start it, and when it cannot be."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
import tensorflow as tf

from smddp_tf.gradients.reducer import GradientReducer
from tests.reasons import BEFORE_INIT
from tests.timelines import Track, read, track

pytestmark = pytest.mark.ranks("2")

STEPS = 3
MANY = 250


@contextmanager
def shared_folder(hvd) -> Iterator[Path]:
    """One for all ranks, which are on one host."""
    path = hvd.broadcast_object(tempfile.mkdtemp() if hvd.rank() == 0 else None)
    yield Path(path)
    hvd.barrier()
    if hvd.rank() == 0:
        for left in Path(path).iterdir():
            left.unlink() if not left.is_dir() or left.is_symlink() else left.rmdir()
        Path(path).rmdir()


@pytest.fixture
def folder(hvd) -> Iterator[Path]:
    with shared_folder(hvd) as path:
        yield path


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


class Recorded(NamedTuple):
    """A timeline of steps and requests of several kinds."""

    left: list[str]  # in the folder
    mode: int  # of the file
    ranks: dict[int, dict[int, Track]]


@pytest.fixture(scope="module")
def recorded(hvd, rank) -> Recorded:
    step = steps("timeline")
    step(tf.constant(1.0))
    with shared_folder(hvd) as folder:
        path = folder / "all.json"
        hvd.start_timeline(path, mark_cycles=True)
        hvd.barrier(name="before")
        for number in range(STEPS):
            step(tf.constant(float(number)))
            hvd.allreduce(tf.ones([3]), name='small "one" ü')
        hvd.allreduce(tf.ones([100_000]), name="large")
        hvd.broadcast(tf.ones([10]), 0, name="sent")
        hvd.allgather(tf.ones([rank + 1]), name="gathered")
        hvd.barrier(name="after")
        hvd.stop_timeline()
        hvd.barrier()
        return Recorded(sorted(p.name for p in folder.iterdir()), path.stat().st_mode & 0o777, read(path))


def test_one_file_has_all_ranks_and_no_part_is_left(recorded, size):
    assert recorded.left == ["all.json"]
    assert sorted(recorded.ranks) == list(range(size))


def test_the_file_is_as_readable_as_any_new_one(recorded):
    umask = os.umask(0)
    os.umask(umask)
    assert recorded.mode == 0o666 & ~umask


def test_requests_are_negotiated_and_then_run(recorded):
    for tracks in recorded.ranks.values():
        small = track(tracks, 'small "one" ü')
        assert small.activities() == {"NEGOTIATE_ALLREDUCE", "ALLREDUCE", "MPI_ALLREDUCE"}
        assert len(small.spans) == 3 * STEPS
        assert track(tracks, "sent").activities() == {"NEGOTIATE_BROADCAST", "BROADCAST", "MPI_BCAST"}
        assert track(tracks, "gathered").activities() == {"NEGOTIATE_ALLGATHER", "ALLGATHER", "MPI_ALLGATHER"}


def test_the_transfer_lies_inside_of_its_request(recorded):
    for tracks in recorded.ranks.values():
        inner = {name: (begin, end) for name, _, begin, end in track(tracks, "large").spans}
        assert inner["ALLREDUCE"][0] <= inner["MPI_ALLREDUCE"][0] <= inner["MPI_ALLREDUCE"][1] <= inner["ALLREDUCE"][1]


def test_cycles_are_marked_where_asked_for(recorded):
    assert all("CYCLE_START" in tracks[0].activities() for tracks in recorded.ranks.values())


def test_every_gradient_waits_and_is_reduced(recorded, size):
    if size == 1:
        pytest.skip("one rank reduces nothing")
    for tracks in recorded.ranks.values():
        for name in ("kernel:0", "bias:0", "table:0"):
            gradient = [each for each in tracks.values() if each.name.split(" (")[0] == name]
            assert sum(len(each.spans) for each in gradient) == 2 * 3 * STEPS
            assert gradient[0].activities() == {"ALLREDUCE", "WAIT_FOR_OTHER_TENSOR_DATA", "MPI_ALLREDUCE"}


def test_steps_are_computed_and_then_their_gradients_are_reduced(recorded, size):
    if size == 1:
        pytest.skip("one rank reduces nothing")
    for tracks in recorded.ranks.values():
        of_steps = track(tracks, "training steps")
        # Two plans share each step of this test, and their gradients are under way at once.
        assert of_steps.activities() == {"STEP", "COMPUTATION", "GRADIENTS"}
        gradients = [span for span in of_steps.spans if span[0] == "GRADIENTS"]
        computing = [span for span in of_steps.spans if span[0] == "COMPUTATION"]
        assert STEPS <= len(gradients) <= 2 * STEPS
        for (_, _, begin, _), (_, _, _, computed) in zip(gradients[1:], computing):
            assert computed == begin


def test_buckets_have_lanes_of_their_own_and_their_stages_too(hvd, recorded, size):
    if size == 1:
        pytest.skip("one rank reduces nothing")
    nodes_of_rail = hvd.allgather(tf.constant([hvd.cross_size()])).numpy()
    for number, tracks in recorded.ranks.items():
        buckets = [each for each in tracks.values() if "bucket" in each.name]
        assert {"ALLREDUCE", "QUEUE", "MPI_ALLREDUCE"} in [each.activities() for each in buckets]
        stages = {name for each in buckets for name in each.activities()}
        assert "NODE_REDUCE_SCATTER" in stages
        assert ("RAIL_ALLREDUCE" in stages) == (nodes_of_rail[number] > 1)


def test_the_clocks_agree(recorded):
    """Nobody has the barrier's verdict before everybody has announced it."""
    barriers = [track(tracks, "after").spans for tracks in recorded.ranks.values()]
    negotiations = [next(span for span in spans if span[0] == "NEGOTIATE_BARRIER") for spans in barriers]
    announced, done = [span[2] for span in negotiations], [span[3] for span in negotiations]
    assert max(announced) < min(done) + 2000  # microseconds, for the clocks of pretended nodes


def test_a_second_start_is_refused_and_a_second_stop_is_harmless(hvd, folder):
    hvd.start_timeline(folder / "once.json")
    with pytest.raises(ValueError, match="started already"):
        hvd.start_timeline(folder / "twice.json")
    hvd.barrier()
    hvd.stop_timeline()
    hvd.stop_timeline()


def test_rank_0_alone_may_start_and_stop_it(hvd, rank, size, folder):
    path = folder / "alone.json"
    if rank == 0:
        path.write_text("what was there before " * 100)
        hvd.start_timeline(str(path))
    for _ in range(5):  # rank 0's word may come to a rank behind what it has told another
        hvd.barrier()
    hvd.allreduce(tf.ones([3]), name="seen")
    for number in range(MANY):
        hvd.barrier(name=f"many {number}")
    hvd.barrier()
    if rank == 0:
        hvd.stop_timeline()
    hvd.barrier()
    hvd.allreduce(tf.ones([3]), name="unseen")
    ranks = read(path)
    assert sorted(ranks) == list(range(size))
    for tracks in ranks.values():
        assert track(tracks, "seen").spans
        names = [each.name for each in tracks.values()]
        assert [name for name in names if name.startswith("many")] == [f"many {number}" for number in range(MANY)]
        assert "unseen" not in names
        assert "CYCLE_START" not in tracks[0].activities()


def test_a_rank_whose_part_cannot_be_written_is_missing(hvd, rank, size, folder):
    path = folder / "without.json"
    if size == 1:
        pytest.skip("rank 1's part is in the way")
    if rank == 0:
        (folder / "without.json.rank1.part").mkdir()
        hvd.start_timeline(path)
    for _ in range(5):
        hvd.barrier()
    hvd.allreduce(tf.ones([3]), name="seen")
    if rank == 0:
        with pytest.warns(UserWarning, match=r"include rank 1 \(.*merge .*without.json") as caught:
            hvd.stop_timeline()
        assert len(caught) == 1
    hvd.barrier()
    assert sorted(read(path)) == [number for number in range(size) if number != 1]


def test_parts_that_another_job_has_left_stay(hvd, rank, size, folder):
    """Of a rank that there is not, and in the place of this job's own."""
    path = folder / "mine.json"
    other = folder / f"mine.json.rank{size}.part"
    if rank == 0:
        other.write_text("[\n]\n")
        (folder / "mine.json.rank1.part").write_text("[\n]\n" * 1000)
    hvd.barrier()
    hvd.start_timeline(path)
    hvd.barrier()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hvd.stop_timeline()
    hvd.barrier()
    assert sorted(read(path)) == list(range(size))
    assert other.exists()
    hvd.barrier()


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
    with pytest.raises(ValueError, match=BEFORE_INIT):
        hvd.start_timeline(path)
    with pytest.raises(ValueError, match=BEFORE_INIT):
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
    assert all(track(tracks, "seen").spans and "CYCLE_START" in tracks[0].activities() for tracks in ranks.values())
    hvd.barrier()  # all have read it
    if rank == 0:
        hvd.start_timeline(path)
        hvd.stop_timeline()
