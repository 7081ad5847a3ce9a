"""The collectives of a DeviceGroup over NCCL (tf_ops/cuda/nccl_*), on a fake NCCL and the fake GPU."""

import numpy as np
import pytest

from tests.fake_gpu.gpu import DTYPES, GpuError, call, count, get, put
from tests.gpu.nccl_group import Group, allreduce_together, numpy_dtype, sums, values

pytestmark = pytest.mark.usefixtures("nccl_gpus")


@pytest.mark.parametrize(
    ("members", "dtype"), [(1, "bfloat16"), (2, "float16"), (4, "float32"), *((3, dtype) for dtype in DTYPES)]
)
def test_reduce_scatter_and_allgather(nccl, members, dtype):
    size = numpy_dtype(dtype).itemsize
    with Group(nccl, range(members)) as group:
        group.wait()
        for each in (1, 1000, 300_000 // size):  # the last takes more than one round of the fake
            arrays = [values(member, members * each, dtype) for member in range(members)]
            whole = [put(array, device) for array, device in zip(arrays, group.devices)]
            for in_place in (False, True):
                part = [
                    memory + member * each * size if in_place else call("allocate", member, each * size)
                    for member, memory in enumerate(whole)
                ]
                gathered = [call("allocate", member, members * each * size) for member in range(members)]
                for member in reversed(range(members)):
                    arguments = (part[member], whole[member], each, DTYPES[dtype], group.streams[member])
                    call("reduce_scatter", group.handles[member], *arguments)
                group.wait()
                for member in range(members):
                    arguments = (gathered[member], part[member], each, DTYPES[dtype], group.streams[member])
                    call("allgather", group.handles[member], *arguments)
                group.wait()
                group.finish()
                for member in range(members):
                    result = get(gathered[member], members * each, numpy_dtype(dtype))
                    np.testing.assert_array_equal(result.view(np.uint8), sums(arrays).view(np.uint8))
                    call("free", member, gathered[member])
                    if not in_place:
                        call("free", member, part[member])
            for member, memory in enumerate(whole):
                call("free", member, memory)


@pytest.mark.parametrize(("members", "dtype"), [(1, "bfloat16"), (4, "float32"), *((3, dtype) for dtype in DTYPES)])
def test_allreduce(nccl, members, dtype):
    with Group(nccl, range(members)) as group:
        group.wait()
        for elements in (1, 3_000_000 // numpy_dtype(dtype).itemsize):  # the last takes more than one round of the fake
            arrays = [values(member, elements, dtype) for member in range(members)]
            memory = [put(array, device) for array, device in zip(arrays, group.devices)]
            into = [call("allocate", device, arrays[0].nbytes) for device in group.devices]
            for in_place in (False, True):
                for member in reversed(range(members)):
                    target = memory[member] if in_place else into[member]
                    arguments = (target, memory[member], elements, DTYPES[dtype], group.streams[member])
                    call("allreduce", group.handles[member], *arguments)
                group.wait()
            group.finish()
            for member in range(members):
                for result in (memory[member], into[member]):
                    got = get(result, elements, numpy_dtype(dtype))
                    np.testing.assert_array_equal(got.view(np.uint8), sums(arrays).view(np.uint8))
                    call("free", member, result)


def test_several_in_one_launch(nccl):
    """Each has its own sums; without elements it is not called at all."""
    arrays = [values(member, 1000, "float32") for member in range(3)]
    memory = [put(array, member) for member, array in enumerate(arrays)]
    with Group(nccl, range(3)) as group:
        group.wait()
        launches = count("launches")
        for member in range(3):
            allreduce_together(group, member, memory[member], [600, 0, 1, 300])
        group.wait()
        group.finish()
        assert count("launches") - launches == 3
    expected = sums(arrays)
    for member in range(3):
        result = get(memory[member], 1000, np.float32)
        np.testing.assert_array_equal(result[:901], expected[:901])
        np.testing.assert_array_equal(result[901:], arrays[member][901:])
        call("free", member, memory[member])


def test_allgather_into_its_own_part(nccl):
    with Group(nccl, range(3)) as group:
        group.wait()
        whole = [put(np.full(30, member, np.float32), member) for member in range(3)]
        for member in range(3):
            own = whole[member] + member * 40
            call("allgather", group.handles[member], whole[member], own, 10, DTYPES["float32"], group.streams[member])
        group.wait()
        group.finish()
        for member in range(3):
            np.testing.assert_array_equal(get(whole[member], 30, np.float32), np.repeat([0, 1, 2], 10))
            call("free", member, whole[member])


def test_nothing_elements(nccl):
    with Group(nccl, range(2)) as group:
        group.wait()
        call("reduce_scatter", group.handles[0], None, None, 0, DTYPES["float32"], group.streams[0])
        assert call("group_ready", group.handles[0]) == 1


def test_ready_tells_when_a_call_may_follow(nccl, monkeypatch):
    monkeypatch.setenv("FAKE_NCCL_POLLS", "3")
    memory = put(values(0, 8, "float32"))
    with Group(nccl, [0]) as group:
        (handle,), (stream,) = group.handles, group.streams
        gather = (handle, memory, memory, 8, DTYPES["float32"], stream)
        with pytest.raises(GpuError, match="has not completed ncclCommInitRankConfig: wait for Ready"):
            call("allgather", *gather)
        assert call("group_ready", handle) == 0
        group.wait()
        call("allgather", *gather)
        assert call("group_ready", handle) == 0
        with pytest.raises(GpuError, match="has not completed ncclAllGather"):
            call("allgather", *gather)
        group.wait()
        call("allgather", *gather)
        group.wait()
        assert call("group_health", handle) == 0
        assert call("group_ready", handle) == 1
    call("free", 0, memory)


def test_a_group_that_ends_in_peace_finishes_its_work(nccl):
    arrays = [values(member, 50_000, "float32") for member in range(2)]
    whole = [put(array, member) for member, array in enumerate(arrays)]
    with Group(nccl, range(2)) as group:
        group.wait()
        for member in range(2):
            arguments = (whole[member] + member * 100_000, whole[member], 25_000, DTYPES["float32"])
            call("reduce_scatter", group.handles[member], *arguments, group.streams[member])
        group.wait()
    for member in range(2):
        own = slice(member * 25_000, (member + 1) * 25_000)
        np.testing.assert_array_equal(get(whole[member], 50_000, np.float32)[own], sums(arrays)[own])
        call("free", member, whole[member])
