"""DeviceGroup over NCCL (tf_ops/cuda/nccl_*), on a fake NCCL and the fake GPU: members in one process and several."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tests import fake_gpu
from tests.fake_gpu.gpu import DTYPES, GpuError, call, finish, get, left_clean, put, text

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 30  # seconds


def numpy_dtype(name):
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def values(member, elements, dtype):
    """Differ by member and position; not all sums are exact in half types."""
    return (np.random.default_rng([member, elements]).standard_normal(elements) * 9).astype(numpy_dtype(dtype))


def sums(arrays):
    """In the order of the members, halves in float32 and rounded once."""
    wide = np.float32 if arrays[0].dtype.itemsize == 2 else arrays[0].dtype
    total = arrays[0].astype(wide)
    for array in arrays[1:]:
        total = total + array.astype(wide)
    return total.astype(arrays[0].dtype)


@pytest.fixture(scope="module")
def nccl():
    return call("load_groups", str(fake_gpu.build_nccl()).encode())


@pytest.fixture(autouse=True)
def gpus():
    """Four devices, work that comes late, and nothing left behind."""
    with left_clean(("allocations", "imports", "streams", "communicators"), DEVICES="4", DELAY_US="300"):
        yield


class Group:
    """All members, driven in turns by this one thread, as NCCL never waits."""

    def __init__(self, nccl, devices):
        identity = text("group_id", nccl).encode()
        self.devices = devices
        self.handles = [
            call("join", nccl, identity, len(devices), member, device) for member, device in enumerate(devices)
        ]
        self.streams = [call("make_stream", device) for device in devices]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for handle in self.handles:
            call("leave", handle)
        for device, stream in zip(self.devices, self.streams):
            call("destroy_stream", device, stream)

    def wait(self, members=None):
        for member in range(len(self.devices)) if members is None else members:
            wait_ready(self.handles[member])

    def finish(self):
        assert all(finish(stream, device) for device, stream in zip(self.devices, self.streams))

    def errors(self, name="group_health"):
        """What each member is told in the end."""
        told = []
        for handle in self.handles:
            with pytest.raises(GpuError) as error:
                wait_for(lambda handle=handle: call(name, handle) and False)
            told.append(str(error.value))
        return told


def wait_for(condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "nothing has happened"
        time.sleep(0.0002)


def wait_ready(handle):
    wait_for(lambda: call("group_ready", handle))


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


def test_two_members_on_one_gpu(nccl):
    with Group(nccl, [0, 1, 1]) as group:
        for words in group.errors("group_ready"):
            assert "internal: NCCL has failed in ncclCommInitRankConfig: invalid usage" in words
            assert "Duplicate GPU detected : rank 1 and rank 2 both on GPU-fake-1. " in words
            assert "SMDDP_GPU_STAGE=ipc" in words
            assert "NCCL_DEBUG=INFO shows more." in words


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
    assert all("different calls: 0 AllGather number 1 of 40 " in words and "1 of 44 " in words for words in told)
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


@pytest.mark.parametrize(("size", "member", "identity"), [(2, 2, None), (0, 0, None), (1, 0, "xy"), (1, 0, "")])
def test_arguments_that_cannot_work(nccl, size, member, identity):
    with pytest.raises(GpuError, match=f"bad_argument: NCCL cannot join as member {member} of {size}"):
        call("join", nccl, (identity if identity is not None else text("group_id", nccl)).encode(), size, member, 0)


def test_integers_are_not_summed(nccl):
    with Group(nccl, [0]) as group:
        group.wait()
        with pytest.raises(GpuError, match="floating dtypes only. Received: int32"):
            call("reduce_scatter", group.handles[0], None, None, 4, 2, group.streams[0])


def test_versions(nccl, tmp_path, monkeypatch):
    assert call("group_version", nccl) == 22703
    for version, words in ((21304, "2.13.4"), (2806, "2.8 or older")):
        library = tmp_path / f"libnccl.so.{version}"
        library.symlink_to(fake_gpu.build_nccl())
        monkeypatch.setenv("FAKE_NCCL_VERSION", str(version))
        with pytest.raises(GpuError, match=f"bad_state: {library} is NCCL {words}, and smddp_tf needs 2.14"):
            call("load_groups", str(library).encode())
    monkeypatch.setenv("FAKE_NCCL_VERSION", "21400")
    assert call("group_version", call("load_groups", str(library).encode())) == 21400


def test_libraries_that_are_not_nccl():
    with pytest.raises(GpuError, match="NCCL cannot be loaded: /none.so: .*SMDDP_NCCL_LIBRARY"):
        call("load_groups", b"/none.so")
    with pytest.raises(GpuError, match="is not a complete NCCL library: it lacks ncclGetVersion"):
        call("load_groups", str(fake_gpu.build()).encode())


def test_nccl_is_found_in_the_folder_of_packages(tmp_path):
    plugin = tmp_path / "site-packages" / "smddp_tf" / "libsmddp_cuda.so"
    wheel = tmp_path / "site-packages" / "nvidia" / "nccl" / "lib" / "libnccl.so.2"
    for file, source in ((plugin, fake_gpu.build()), (wheel, fake_gpu.build_nccl())):
        file.parent.mkdir(parents=True)
        shutil.copy(source, file)
    program = (
        "import ctypes, sys; library = ctypes.CDLL(sys.argv[1]); load = library.fake_gpu_load_groups;"
        "load.restype = ctypes.c_void_p; print(library.fake_gpu_group_version(ctypes.c_void_p(load(b''))))"
    )
    told = subprocess.run([sys.executable, "-c", program, plugin], capture_output=True, text=True, timeout=60)
    assert told.stdout.strip() == "22703", told.stderr


MEMBER = """
import sys
from tests.fake_gpu.gpu import stream_of
from tests.gpu.test_nccl_adapter import *
member, size, dies = (int(word) for word in sys.argv[1:])
nccl = call("load_groups", str(fake_gpu.build_nccl()).encode())
if member == 0:
    print(text("group_id", nccl), flush=True)
identity = sys.stdin.readline().strip().encode()
handle = call("join", nccl, identity, size, member, 0)
wait_ready(handle)
memory = put(values(member, size * 5000, "float32"))
with stream_of() as stream:
    for step in range(3):
        if member == dies and step == 2:
            os._exit(0)
        call("reduce_scatter", handle, memory + member * 20000, memory, 5000, DTYPES["float32"], stream)
        wait_ready(handle)
        call("allgather", handle, memory, memory + member * 20000, 5000, DTYPES["float32"], stream)
        wait_ready(handle)
        try:
            wait_for(lambda: finish(stream, seconds=0.01) or call("group_health", handle) and False)
        except GpuError as error:
            print(error, flush=True)
            sys.stdin.read()  # until all have told of their loss: who leaves is gone too
            call("group_abort", handle)
            assert finish(stream)
            break
    else:
        print(get(memory, size * 5000, np.float32).sum(dtype=np.float64), flush=True)
    call("leave", handle)
"""


@pytest.mark.parametrize("dies", [-1, 1])
def test_members_in_processes_of_their_own(dies):
    size = 3
    members = [
        subprocess.Popen(
            [sys.executable, "-c", MEMBER, str(member), str(size), str(dies)],
            cwd=ROOT,
            env={**os.environ, "FAKE_GPU_SHARED": "0"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for member in range(size)
    ]
    try:
        identity = members[0].stdout.readline()
        for process in members:
            process.stdin.write(identity)
            process.stdin.flush()
        words = [process.stdout.readline() for process in members]
        errors = [process.communicate(timeout=60)[1] for process in members]
    finally:
        for process in members:
            process.kill()
    total = [values(member, size * 5000, "float32") for member in range(size)]
    for _ in range(3):
        total = [sums(total)] * size
    for member in range(size):
        if dies < 0:
            assert float(words[member]) == total[0].sum(dtype=np.float64), errors[member]
        elif member != dies:
            assert words[member].startswith("peer_lost: NCCL has failed in"), errors[member]
            assert f"member {dies} has gone" in words[member]
