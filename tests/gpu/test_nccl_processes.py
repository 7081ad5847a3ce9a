"""A DeviceGroup over the fake NCCL whose members are processes of their own."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.gpu.nccl_group import sums, values

pytestmark = pytest.mark.usefixtures("nccl_gpus")


ROOT = Path(__file__).resolve().parents[2]


MEMBER = """
import os
import sys

import numpy as np

from tests import fake_gpu
from tests.fake_gpu.gpu import DTYPES, GpuError, call, finish, get, put, stream_of, text
from tests.gpu.nccl_group import values, wait_for, wait_ready

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
            assert words[member].startswith("peer_lost: "), errors[member]
            assert f"member {dies} has gone" in words[member]
