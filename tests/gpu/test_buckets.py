"""Buckets of gradients on GPUs (tf_ops/collectives/device): every way between them, ranks as threads, no sessions.

The oracle is the CPU path, which gives the same bits where the arithmetic is ours, and NumPy.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import native_module
from tests.fake_gpu.gpu import count, functions, left_clean
from tests.gpu.bucket_job import ALIVE, MAX, MIN, SUM, Job, assert_equal_bits, assert_sums
from tests.support.layouts import hosts
from tests.variants import FULL

_core = native_module.core()

STAGES = ("host", "nccl-node", "nccl")
LAYOUTS = {
    "1": hosts(1),
    "2": hosts(2),
    "4": hosts(4),
    "1+1": hosts(1, 1),
    "2+2": hosts(2, 2),
    "2+1": hosts(2, 1),
    "1+4+2": hosts(1, 4, 2),
}

over_layouts = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
over_stages = pytest.mark.parametrize("stage", STAGES)


@pytest.fixture(autouse=True)
def gpus() -> Iterator[None]:
    """Devices enough, work that comes late, and nothing left behind."""
    with left_clean(ALIVE, DEVICES="17", DELAY_US="100"):
        yield


def test_the_cpu_path_is_an_oracle():
    job = Job(hosts(2, 1), "host").on_cpu()
    packs = count("pack")
    assert_sums(job, job.results())
    assert count("pack") == packs


@over_layouts
@over_stages
def test_every_way_sums_in_every_layout(layout, stage):
    job = Job(layout, stage)
    results = job.results()
    assert_sums(job, results)
    if stage == "host":  # NCCL sums in an order of its own
        assert_equal_bits(results, job.on_cpu().results())


@over_stages
@pytest.mark.parametrize(
    ("dtype", "wire"),
    [
        ("float32", "float16"),
        ("float32", "bfloat16"),
        ("float64", "float64"),
        ("float16", "float16"),
        ("bfloat16", "bfloat16"),
    ],
)
@pytest.mark.parametrize("layout", [hosts(3), hosts(2, 2)], ids=["3", "2+2"])
def test_dtypes_and_scalings(layout, stage, dtype, wire):
    job = Job(layout, stage, dtype, wire, prescale=0.5, postscale=3.0, divisor=len(layout), steps=1)
    results = job.results()
    assert_sums(job, results)
    if stage == "host":
        assert_equal_bits(results, job.on_cpu().results())


@pytest.mark.parametrize(
    ("dtype", "op", "divisor"), [("int32", SUM, 3), ("int64", MAX, 1), ("float32", MIN, 1), ("uint8", SUM, 1)]
)
def test_what_gpus_do_not_sum_goes_through_host_memory(dtype, op, divisor):
    job = Job(hosts(2, 1), "host", dtype, dtype, op, divisor=divisor)
    assert_equal_bits(job.results(), job.on_cpu().results())


@pytest.mark.parametrize("layout", [hosts(2), hosts(2, 2)], ids=["2", "2+2"])
def test_ranks_with_gpus_and_without_reduce_together(layout):
    """A rank whose tensors are in host memory does not notice that another's are not."""
    job = Job(layout, "host", wire="bfloat16", prescale=2.0)
    job.in_host_memory = {1: list(range(job.pieces))}
    assert_equal_bits(job.results(), job.on_cpu().results())


@over_stages
def test_pieces_in_host_memory(stage):
    """A gradient that was computed on the CPU; all of a rank that has joined."""
    job = Job(hosts(2, 1), stage)
    job.in_host_memory = {0: [0, 9], 1: list(range(job.pieces)), 2: [4, 7, 8]}
    results = job.results()
    assert_sums(job, results)
    if stage == "host":
        assert_equal_bits(results, job.on_cpu().results())


@over_stages
@pytest.mark.parametrize("layout", [hosts(2), hosts(1, 1)], ids=["2", "1+1"])
def test_copies_of_several_parts(layout, stage):
    """More than the copy engines are given at once (pinned_copy.h)."""
    job = Job(layout, stage, buckets=((300_001,), (30_000, 5)), chunk_bytes=1 << 17, pause_us=0)
    assert_sums(job, job.results())


@over_stages
def test_buffers_are_made_in_the_first_steps_only(stage):
    job = Job(hosts(2, 2), stage, steps=12, pause_us=50)
    before = {what: count(what) for what in ("allocate", "pin", "stream")}
    assert_sums(job, job.results())
    made = {what: count(what) - calls for what, calls in before.items()}
    full = sum(any(bucket) for bucket in job.buckets)  # those with elements
    ranks = len(job.layout)
    assert made["allocate"] <= ranks * (full + 1)  # one more: the harness's tensors
    assert made["pin"] <= ranks * (full + 1)
    assert made["stream"] <= ranks * 6


FAILURES = {
    "host": ("pack:2", "unpack:2", "copy:9", "record:20", "wait:9", "done:12", "allocate:6", "pin:6", "work:40"),
    "nccl-node": (
        "pack:2",
        "unpack:2",
        "copy:9",
        "record:20",
        "wait:9",
        "done:12",
        "allocate:6",
        "event:12",
        "work:40",
    ),
    "nccl": ("pack:2", "unpack:2", "record:20", "wait:9", "done:12", "allocate:6", "event:12", "work:40"),
}


@pytest.mark.parametrize(("stage", "failure"), [(stage, each) for stage in STAGES for each in FAILURES[stage]])
def test_errors_of_the_gpu_end_it_everywhere(stage, failure, monkeypatch):
    monkeypatch.setenv("FAKE_GPU_FAIL", failure)
    functions().fake_gpu_reload()
    kind = failure.split(":")[0]
    # Where work has failed nothing works any more: devices that no other test uses.
    first = {"host": 8, "nccl-node": 9, "nccl": 13}[stage] if kind == "work" else 0
    errors, _ = Job(hosts(2, 2), stage, steps=5, seconds=20, first_device=first).run()
    assert all(errors)
    assert any("fake GPU" in error for error in errors), errors
    assert not any("Stands still" in error for error in errors), errors
    if kind in ("pack", "unpack", "copy"):
        assert any(error.startswith("GPU ") for error in errors), errors  # which one, doing what


@pytest.mark.parametrize("failure", ["call:6:3@1", "async:6:3@0", "init:6@1"])
@pytest.mark.parametrize(
    ("stage", "layout"), [("nccl", hosts(3)), ("nccl", hosts(2, 1)), ("nccl-node", hosts(2, 2))], ids=str
)
def test_errors_of_nccl_end_it_everywhere(stage, layout, failure, monkeypatch):
    monkeypatch.setenv("FAKE_NCCL_FAIL", failure)
    errors, _ = Job(layout, stage, steps=50, seconds=20).run()
    assert all(errors)
    assert any("NCCL" in error for error in errors), errors
    assert not any("Stands still" in error for error in errors), errors


@pytest.mark.parametrize("layout", [hosts(3), hosts(2, 2)], ids=["3", "2+2"])
def test_buckets_that_are_ready_go_to_nccl_together(layout, monkeypatch):
    """Alone go the first two: the others come while NCCL, which is slow here, still launches these."""
    monkeypatch.setenv("FAKE_NCCL_POLLS", "200")
    job = Job(layout, "nccl", buckets=[(3 * i + 1, i) for i in range(20)], pause_us=0)
    before = {what: count(what) for what in ("launches", "launched")}
    assert_sums(job, job.results())
    made = {what: count(what) - number for what, number in before.items()}
    calls = len(layout) * len(job.buckets) * job.steps
    assert made["launched"] == calls
    assert made["launches"] <= calls // 2


if FULL:

    @pytest.mark.parametrize("seed", range(20))
    @over_stages
    def test_many_steps(stage, seed, monkeypatch):
        monkeypatch.setenv("FAKE_GPU_SEED", str(seed))
        monkeypatch.setenv("FAKE_GPU_DELAY_US", "1000")
        functions().fake_gpu_reload()
        job = Job(hosts(3, 2), stage, steps=10)
        assert_sums(job, job.results())
