"""Plans and named requests whose tensors lie on GPUs, with ranks as threads."""

import pytest

from tests import native_module
from tests.fake_gpu.gpu import count, left_clean
from tests.gpu.bucket_job import ALIVE
from tests.gpu.gpu_steps import SIZES, TWO_NODES, UNEVEN, check, gradients, steps, sums

core = native_module.core()


SUM = 1
AVERAGE = 0
ONE_NODE = ["a", "a", "a"]


@pytest.mark.parametrize("stage", ["host", "auto"])
@pytest.mark.parametrize("hosts", [ONE_NODE, TWO_NODES, UNEVEN], ids=["3 ranks", "2x2", "2+1"])
def test_plans_of_tensors_on_one_gpu(hosts, stage):
    arrays = gradients(len(hosts))
    expected = sums(arrays, prescale=0.5, postscale=2.0)
    assert steps(hosts, arrays, stage=stage, prescale=0.5, postscale=2.0) == [""] * len(hosts)
    check(arrays, expected)


def test_many_steps():
    arrays = gradients(3)
    expected = [sum_ * 3**4 for sum_ in sums(arrays)]
    assert steps(ONE_NODE, arrays, stage="auto", steps=5) == [""] * 3
    check(arrays, expected)


@pytest.mark.parametrize("stage", ["host", "nccl"])
@pytest.mark.parametrize("last_rank", [0, 1])
def test_a_rank_asks_last_about_the_gpus(stage, last_rank):
    """Where it is the coordinator, it is answered, and its bucket begun, before the call that asks returns."""
    arrays = gradients(2)
    expected = [sum_ * 2**3 for sum_ in sums(arrays)]
    with left_clean([], DEVICES="2"):
        told = steps(["a", "a"], arrays, stage=stage, device_of_rank=[0, 1], last_rank=last_rank, steps=4)
    assert told == [""] * 2
    check(arrays, expected)


def test_some_tensors_lie_in_host_memory():
    arrays = gradients(3)
    expected = sums(arrays)
    on_host = [[(index + rank) % 3 == 0 for index in range(len(SIZES))] for rank in range(3)]
    assert steps(ONE_NODE, arrays, on_host=on_host) == [""] * 3
    check(arrays, expected)


def test_a_rank_without_a_gpu_brings_all_through_host_memory():
    arrays = gradients(3)
    expected = sums(arrays)
    on_host = [[rank == 1] * len(SIZES) for rank in range(3)]
    assert steps(ONE_NODE, arrays, on_host=on_host, steps=1) == [""] * 3
    check(arrays, expected)


def test_named_requests_go_through_host_memory():
    arrays = gradients(3)
    expected = [sum_ / 3 for sum_ in sums(arrays)]
    assert steps(ONE_NODE, arrays, op=AVERAGE, planned=False, steps=1) == [""] * 3
    check(arrays, expected)


def test_named_requests_use_their_pinned_memory_again():
    arrays = gradients(3)
    expected = [sum_ / 3 for sum_ in sums(arrays)]
    with left_clean(ALIVE):
        pins = count("pin")
        assert steps(ONE_NODE, arrays, op=AVERAGE, planned=False, steps=8) == [""] * 3
        assert count("pin") - pins <= 3 * len(SIZES)  # at most one for each tensor that is under way
    check(arrays, expected)


def test_named_requests_of_different_sizes_are_an_error_on_all_ranks():
    arrays = gradients(2) + gradients(1, (*SIZES[:-1], SIZES[-1] + 1))
    with left_clean(ALIVE):
        told = steps(ONE_NODE, arrays, planned=False, steps=1)
    assert all("8001" in words and "8000" in words for words in told), told


def test_a_wanted_way_that_cannot_be_is_an_error_on_all_ranks():
    arrays = gradients(2)
    told = steps(["a", "a"], arrays, stage="nccl")
    assert told[0] == told[1]
    assert "SMDDP_GPU_STAGE=nccl, but rank 0 (host a) and rank 1 (host a) use the same GPU" in told[0]


@pytest.mark.parametrize("stage", ["host", "auto"])
@pytest.mark.parametrize("planned", [True, False], ids=["planned", "named"])
def test_sums_in_8_bits_are_exchanged_in_host_memory(stage, planned):
    """Small tensors are exact, and all ranks have the same bits."""
    sizes = (40_000, 1000, 20_000)
    arrays = gradients(4, sizes)
    expected = sums(arrays)
    told = steps(TWO_NODES, arrays, stage=stage, planned=planned, wire_dtype="int8", chunk_bytes=65536)
    assert told == [""] * 4
    check([[of_rank[1]] for of_rank in arrays], [expected[1]])
    for index in (0, 2):
        error = abs(arrays[0][index] - expected[index])
        assert 1e-3 < error.mean() < 0.05
        assert error.max() < 0.2
        assert len({of_rank[index].tobytes() for of_rank in arrays}) == 1
