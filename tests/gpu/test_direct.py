"""GPU-direct between nodes: messages lie in GPU memory, which this GPU lets the host touch, as a CUDA-aware MPI can.

The oracles are the way through pinned memory, which gives the same bits, and NumPy.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.fake_gpu.gpu import count, functions, left_clean
from tests.gpu.bucket_job import ALIVE, Job, assert_equal_bits, assert_sums
from tests.gpu.gpu_steps import SIZES, TWO_NODES, UNEVEN, check, gradients, steps, sums
from tests.native.layouts import hosts

LAYOUTS = {
    "1+1": hosts(1, 1),
    "1+1+1": hosts(1, 1, 1),
    "2+2": hosts(2, 2),
    "2+1": hosts(2, 1),
    "1+4+2": hosts(1, 4, 2),
    "5x1": hosts(1, 1, 1, 1, 1),
}
over_layouts = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
over_stages = pytest.mark.parametrize("stage", ["ipc", "nccl"])


@pytest.fixture(autouse=True)
def gpus() -> Iterator[None]:
    """Sixteen devices, work that comes late, and nothing left behind."""
    with left_clean(ALIVE, DEVICES="16", DELAY_US="100", OPEN="1"):
        yield


@over_layouts
@over_stages
def test_sums_have_the_bits_of_the_way_through_the_host(layout, stage):
    job = Job(layout, stage, direct=True)
    pins, current = count("pin"), max(count("current"), 0)
    results = job.results()
    assert count("current") - current == len(layout)  # which GPU MPI is to think of
    assert count("pin") - pins == len(layout)  # the harness's own: nothing goes by way of the host
    assert_sums(job, results)
    assert_equal_bits(results, replace(job, direct=False).results())


@over_stages
@pytest.mark.parametrize("wire", ["float16", "bfloat16", "float64"])
@pytest.mark.parametrize("layout", [hosts(1, 1, 1), hosts(2, 2), hosts(1, 1, 1, 1, 1)], ids=["1+1+1", "2+2", "5x1"])
def test_dtypes(layout, stage, wire):
    dtype = "float64" if wire == "float64" else "float32"
    job = Job(layout, stage, dtype, wire, prescale=0.5, postscale=3.0, divisor=len(layout), steps=1, direct=True)
    results = job.results()
    assert_sums(job, results)
    assert_equal_bits(results, replace(job, direct=False).results())


@over_stages
def test_buffers_are_made_in_the_first_steps_only(stage):
    job = Job(hosts(2, 2), stage, steps=2, pause_us=50, direct=True)
    job.results()
    few = count("allocate")
    job.results()
    made = count("allocate") - few
    few = count("allocate")
    replace(job, steps=20).results()
    # Which buckets meet is chance: some more, never some with each step.
    assert count("allocate") - few <= 2 * made


@pytest.mark.parametrize("failure", ["sum:3", "record:20", "done:25", "allocate:14", "work:40"])
def test_errors_of_the_gpu_end_it_everywhere(failure, monkeypatch):
    monkeypatch.setenv("FAKE_GPU_FAIL", failure)
    functions().fake_gpu_reload()
    first = 11 if failure.startswith("work") else 0  # where work has failed nothing works any more
    errors, _ = Job(hosts(2, 2), "ipc", steps=5, seconds=20, first_device=first, direct=True).run()
    assert all(errors)
    assert any("fake GPU" in error for error in errors), errors
    assert not any("Stands still" in error for error in errors), errors


@pytest.mark.parametrize("layout", [TWO_NODES, UNEVEN, ["a", "b", "c"]], ids=["2x2", "2+1", "3x1"])
def test_plans(layout):
    arrays = gradients(len(layout))
    expected = sums(arrays, prescale=0.5, postscale=2.0)
    pins = count("pin")
    assert steps(layout, arrays, stage="ipc", direct="on", prescale=0.5, postscale=2.0) == [""] * len(layout)
    assert count("pin") == pins
    check(arrays, expected)


def test_a_plan_with_tensors_in_host_memory():
    arrays = gradients(4)
    expected = sums(arrays)
    on_host = [[rank == 1 and index == 2 for index in range(len(SIZES))] for rank in range(4)]
    assert steps(TWO_NODES, arrays, on_host=on_host, direct="on") == [""] * 4
    check(arrays, expected)


def test_mail_between_threads_does_not_say_that_it_takes_gpu_memory():
    arrays = gradients(2)
    pins = count("pin")
    assert steps(["a", "b"], arrays) == [""] * 2
    assert count("pin") > pins


@pytest.mark.parametrize("stage", ["host", "ipc", "auto"])
@pytest.mark.parametrize("planned", [True, False], ids=["planned", "named"])
def test_sums_in_8_bits_are_exchanged_in_host_memory(stage, planned):
    """Also where MPI could read them on the GPU. Small tensors are exact, and all ranks have the same bits."""
    sizes = (40_000, 1000, 20_000)
    arrays = gradients(4, sizes)
    expected = sums(arrays)
    told = steps(TWO_NODES, arrays, stage=stage, planned=planned, wire_dtype="int8", direct="on", chunk_bytes=65536)
    assert told == [""] * 4
    check([[of_rank[1]] for of_rank in arrays], [expected[1]])
    for index in (0, 2):
        error = abs(arrays[0][index] - expected[index])
        assert 1e-3 < error.mean() < 0.05
        assert error.max() < 0.2
        assert len({of_rank[index].tobytes() for of_rank in arrays}) == 1
