"""What a rank records of `fit` and of custom loops: steps, facts, and in which order they go on."""

from __future__ import annotations

import os
import time
import warnings

import pytest
import tensorflow as tf

from smddp_tf.monitor import files, recording
from tests.recordings import facts_of, lines_of
from tests.support.keras_training import skip_jit
from tests.support.measured_fit import ROWS, batches, fit
from tests.variants import in_full

pytestmark = pytest.mark.ranks("2")

PAUSE, LONG = 0.02, 1.2


@pytest.fixture(autouse=True)
def nothing_is_recorded_afterwards(hvd):
    yield
    hvd.monitor.stop()
    hvd.barrier()


@pytest.mark.parametrize(
    ("jit", "steps_per_execution"),
    [
        pytest.param(False, 1, id="plain"),
        pytest.param(False, 3, id="3 in a call"),
        *in_full(pytest.param(True, 1, id="jit")),
    ],
)
def test_fit(hvd, rank, size, shared_folder, jit, steps_per_execution):
    """Seven steps in each of two epochs; no step is that of the validation."""
    skip_jit(jit, size)
    hvd.monitor.start(shared_folder)
    data = batches(rank, 7, pause=LONG)
    more = {
        "jit": jit,
        "steps_per_execution": steps_per_execution,
        "validation_data": batches(rank, steps_per_execution),
    }
    history = fit(data, **more).history
    assert {"samples_per_second", "step_seconds", *(["rank_spread"] if size > 1 else [])} <= set(history)
    hvd.monitor.stop()
    steps = lines_of(files.steps_file(shared_folder, rank))
    assert all(set(step) == set(files.Step.__annotations__) for step in steps)
    assert [step["step"] for step in steps] == list(range(14))
    assert [step["epoch"] for step in steps] == [0] * 7 + [1] * 7
    assert [step["samples"] for step in steps] == [ROWS - rank % 2] * 14
    for step in steps:
        assert 0 <= step["input"] < step["seconds"]
        assert 0 <= step["exposed"] <= step["reducing"] < step["seconds"]
    # While the sixth batch is made, two that are ready are used.
    waited = [step["input"] for step in steps[7:]]
    assert sum(waited[3:6]) > 0.5 * LONG
    assert sum(waited[:3]) < 0.5 * sum(waited[3:6])
    if size > 1:
        assert all(step["reducing"] > 0 for step in steps)
    facts = facts_of(files.rank_file(shared_folder, rank))
    assert set(facts) == set(files.RankFacts.__annotations__)
    assert (facts["rank"], facts["size"], facts["pid"]) == (rank, size, os.getpid())
    assert facts["started"] < facts["first_step"] == steps[0]["time"] < steps[-1]["time"] < facts["ended"]
    if size > 1:
        assert abs(facts["clock"]) < 5.0
        assert rank > 0 or facts["clock"] == 0.0
    hvd.barrier()
    assert len(list(shared_folder.glob("rank-*.json"))) == size
    assert len(list(shared_folder.glob("host-*.jsonl"))) <= facts["nodes"]


def test_uneven_data(hvd, rank, size, shared_folder):
    """Rank r has 3 + r batches: all ranks have the steps of the longest, and samples of their own only."""
    hvd.monitor.start(shared_folder)
    fit(batches(rank, 3 + rank).prefetch(1), epochs=1)
    hvd.monitor.stop()
    steps = lines_of(files.steps_file(shared_folder, rank))
    counts = hvd.allgather_object([step["step"] for step in steps])
    assert all(count == counts[0] for count in counts)
    assert len(steps) >= 3 + size - 1
    assert sum(step["samples"] for step in steps) == (3 + rank) * (ROWS - rank % 2)


def test_data_that_go_on_after_some_ranks_have_run_out(hvd, rank, size, shared_folder):
    """With `steps_per_epoch` Keras's own iterator gives way to one of padding."""
    hvd.monitor.start(shared_folder)
    fit(batches(rank, 2 + rank), epochs=1, steps_per_epoch=2 + size)
    hvd.monitor.stop()
    steps = lines_of(files.steps_file(shared_folder, rank))
    assert all(count == len(steps) for count in hvd.allgather_object(len(steps)))
    assert sum(step["samples"] for step in steps) == (2 + rank) * (ROWS - rank % 2)


def test_custom_loop(hvd, rank, size, shared_folder):
    variables = [tf.Variable(tf.ones([5000]) * (rank + 1.0))]

    @tf.function
    def train_step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(variables[0] ** 2)
        return hvd.DistributedGradientTape(tape).gradient(loss, variables)

    with hvd.monitor.step(samples=1):  # nothing is recorded yet
        train_step()
    hvd.monitor.start(shared_folder)
    for epoch in range(2):
        for number in range(3):
            time.sleep(PAUSE)
            with hvd.monitor.step(samples=10 * rank + number, epoch=epoch):
                train_step()
    hvd.monitor.stop()
    steps = lines_of(files.steps_file(shared_folder, rank))
    assert [(step["step"], step["epoch"], step["samples"]) for step in steps] == [
        (3 * epoch + number, epoch, 10 * rank + number) for epoch in range(2) for number in range(3)
    ]
    assert [step["input"] >= PAUSE for step in steps] == [False, True, True] * 2
    if size > 1:
        assert all(step["reducing"] > 0 for step in steps)


def test_a_folder_that_cannot_be_written_on_one_rank(hvd, rank, size, shared_folder):
    """That rank warns; all train on, and their values are the same."""
    last = rank == size - 1
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        hvd.monitor.start("/dev/null/missing" if last else shared_folder)
    found = [str(warning.message) for warning in caught if "records nothing" in str(warning.message)]
    assert len(found) == int(last)
    assert not last or f"Rank {rank} records nothing in /dev/null/missing" in found[0]
    history = fit(batches(rank, 3)).history
    everybody = hvd.allgather_object(history["samples_per_second"])
    assert all(each == everybody[0] for each in everybody)
    hvd.monitor.stop()
    hvd.barrier()
    assert len(list(shared_folder.glob("rank-*.steps.jsonl"))) == size - 1


def test_one_recording_at_a_time(hvd, shared_folder):
    hvd.monitor.start(shared_folder)
    hvd.monitor.start(shared_folder)
    with pytest.raises(ValueError, match="stop it first"):
        hvd.monitor.start(shared_folder / "other")


def test_another_session_goes_on_with_the_recording(restartable, rank, shared_folder):
    """As elastic training does; what an earlier job has left is removed first."""
    from smddp_tf.basics import restart

    old = files.steps_file(shared_folder, rank)
    old.write_text("of another job\n")
    if rank == 0:
        (shared_folder / "rank-00099.json").write_text("of a job with more ranks")
    restartable.barrier()
    restartable.monitor.start(shared_folder)
    threads = {recording.current()._thread}
    fit(batches(rank, 2), epochs=1)
    restart()
    threads.add(recording.current()._thread)
    fit(batches(rank, 3), epochs=1)
    restartable.monitor.stop()
    assert not any(thread.is_alive() for thread in threads)
    assert len(threads) == 2
    steps = lines_of(old)
    assert [step["step"] for step in steps] == list(range(5))
    assert facts_of(files.rank_file(shared_folder, rank))["first_step"] == steps[0]["time"]
    restartable.barrier()
    assert not (shared_folder / "rank-00099.json").exists()


def test_summary(hvd, rank, size):
    found = hvd.summary()
    assert found["ranks"].startswith(f"{size} on ")
    assert f"this is rank {rank}," in found["ranks"]
    assert f"tensorflow {tf.__version__}" in found["versions"]
    assert "MPI" in found["mpi"]
    assert [line.split()[0] for line in str(found).splitlines()] == list(found)
    fit(batches(rank, 2), epochs=1)
    assert hvd.summary()["gradients"] != "0 plan(s), 0 steps" or size == 1
