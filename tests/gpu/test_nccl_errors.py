"""Errors of NCCL in a DeviceGroup: what each member is told, and what an abort ends."""

import pytest

from tests.fake_gpu.gpu import DTYPES, GpuError, call, finish, put, text
from tests.gpu.nccl_group import Group, allreduce_together, values, wait_for

pytestmark = pytest.mark.usefixtures("nccl_gpus")


def test_two_members_on_one_gpu(nccl):
    with Group(nccl, [0, 1, 1]) as group:
        for words in group.errors("group_ready"):
            assert "internal: NCCL has failed in ncclCommInitRankConfig: invalid usage" in words
            assert "Duplicate GPU detected : rank 1 and rank 2 both on " in words
            assert "SMDDP_GPU_STAGE=host" in words
            assert "NCCL_DEBUG=INFO shows more." in words


def test_members_that_make_other_calls_together(nccl):
    """Whatever NCCL does with a launch of several, all members must have the same."""
    memory = [put(values(member, 100, "float32"), member) for member in range(2)]
    with Group(nccl, range(2)) as group:
        group.wait()
        for member, parts in enumerate(([10, 20], [10])):
            allreduce_together(group, member, memory[member], parts)
        group.wait()
        told = group.errors()
        for handle in group.handles:
            call("group_abort", handle)
        group.finish()
    assert all("AllReduce number 1 of 10 elements of type 7, 2 together, 1 AllReduce" in words for words in told), told
    for member in range(2):
        call("free", member, memory[member])


def test_members_that_make_different_calls(nccl):
    memory = [put(values(member, 100, "float32"), member) for member in range(2)]
    with Group(nccl, range(2)) as group:
        group.wait()
        for member, each in enumerate((10, 11)):
            arguments = (memory[member], memory[member] + member * each * 4, each, DTYPES["float32"])
            call("allgather", group.handles[member], *arguments, group.streams[member])
        group.wait()
        told = group.errors()
        for handle in group.handles:
            call("group_abort", handle)
        group.finish()
    assert all("different calls: 0 AllGather number 1 of 10 " in words and "1 of 11 " in words for words in told)
    for member in range(2):
        call("free", member, memory[member])


CAUSES = {
    1: ("internal", "the GPU or its driver"),
    2: ("internal", "NCCL_SOCKET_IFNAME"),
    3: ("internal", "ranks with different versions of NCCL"),
    5: ("internal", "two ranks of a node on the same GPU"),
    6: ("peer_lost", "another rank has ended"),
    8: ("peer_lost", "another rank has ended"),
}


@pytest.mark.parametrize("result", CAUSES)
@pytest.mark.parametrize("where", ["start", "init", "call", "async"])
def test_errors_name_the_call_and_the_usual_cause(nccl, where, result, monkeypatch):
    monkeypatch.setenv("FAKE_NCCL_FAIL", f"{where}:{result}")
    code, cause = CAUSES[result]
    memory = put(values(0, 8, "float32"))

    def run(group):
        group.wait()
        call("allgather", group.handles[0], memory, memory, 8, DTYPES["float32"], group.streams[0])
        group.wait()
        wait_for(lambda: call("group_health", group.handles[0]))

    if where == "start":
        with pytest.raises(GpuError) as error:
            Group(nccl, [0])
    else:
        with Group(nccl, [0]) as group:
            with pytest.raises(GpuError) as error:
                run(group)
            for name in ("group_ready", "group_health"):  # the error stays
                with pytest.raises(GpuError) as again:
                    call(name, group.handles[0])
                assert str(again.value) == str(error.value)
    name = "ncclAllGather" if where in ("call", "async") else "ncclCommInitRankConfig"
    assert str(error.value).startswith(f"{code}: NCCL has failed in {name}: ")
    assert "as FAKE_NCCL_FAIL says" in str(error.value)
    assert cause in str(error.value)
    call("free", 0, memory)


def test_no_id(nccl, monkeypatch):
    monkeypatch.setenv("FAKE_NCCL_FAIL", "id:2")
    with pytest.raises(GpuError, match="ncclGetUniqueId: unhandled system error: no network.*NCCL_SOCKET_IFNAME"):
        text("group_id", nccl)


def test_a_member_that_has_gone(nccl):
    memory = put(values(0, 8, "float32"))
    with Group(nccl, range(2)) as group:
        group.wait()
        call("allgather", group.handles[0], memory, memory, 4, DTYPES["float32"], group.streams[0])
        group.wait([0])
        call("group_abort", group.handles[1])
        with pytest.raises(GpuError, match="peer_lost: .* ncclAllGather: remote process exited.*member 1 has gone"):
            wait_for(lambda: call("group_health", group.handles[0]))
        assert not finish(group.streams[0], seconds=0.02)
        call("group_abort", group.handles[0])
        group.finish()
    call("free", 0, memory)


def test_abort_ends_what_is_stuck_and_nothing_follows(nccl, monkeypatch):
    monkeypatch.setenv("FAKE_NCCL_SILENT", "1")
    memory = put(values(0, 8, "float32"))
    with Group(nccl, range(2)) as group:
        group.wait()
        handle = group.handles[0]
        gather = (handle, memory, memory, 4, DTYPES["float32"], group.streams[0])
        call("allgather", *gather)
        group.wait([0])
        call("group_abort", group.handles[1])
        assert not finish(group.streams[0], seconds=0.02)
        assert call("group_health", handle) == 0
        call("group_abort", handle)
        group.finish()
        for name, arguments in (("group_ready", (handle,)), ("group_health", (handle,)), ("allgather", gather)):
            with pytest.raises(GpuError, match="was aborted"):
                call(name, *arguments)
        call("group_abort", handle)
    call("free", 0, memory)


def test_who_waits_for_a_member_that_never_comes_can_leave(nccl):
    identity = text("group_id", nccl).encode()
    handle = call("join", nccl, identity, 2, 0, 0)
    assert call("group_ready", handle) == 0
    call("leave", handle)


@pytest.mark.parametrize(("size", "member", "identity"), [(2, 2, None), (0, 0, None), (1, 0, "ab"), (1, 0, "")])
def test_arguments_that_cannot_work(nccl, size, member, identity):
    with pytest.raises(GpuError, match=f"bad_argument: NCCL cannot join as member {member} of {size}"):
        call("join", nccl, (identity if identity is not None else text("group_id", nccl)).encode(), size, member, 0)


def test_integers_are_not_summed(nccl):
    with Group(nccl, [0]) as group:
        group.wait()
        with pytest.raises(GpuError, match="floating dtypes only. Received: int32"):
            call("reduce_scatter", group.handles[0], None, None, 4, 2, group.streams[0])
