"""libsmddp_cuda.so as it was built here: its code, what it needs to load, and what it says without a driver."""

import ctypes
import json
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import smddp_tf
from smddp_tf import _build_info
from smddp_tf._native import loader
from tests.tools.build_environment import build_env

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = Path(smddp_tf.__file__).with_name("libsmddp_cuda.so")
CUDA_VERSION = getattr(_build_info, "CUDA_VERSION", "")

PTX, MACHINE_CODE = 1, 2


@pytest.fixture(autouse=True)
def built_with_cuda():
    if not CUDA_VERSION:
        pytest.skip("smddp_tf was built without CUDA: there is no nvcc here, or SMDDP_CUDA=off")


def fatbins(data: bytes) -> Iterator[list[tuple[int, int]]]:
    """Of each part that nvcc has put into a library: the kind of code and for which architecture.

    A header of magic number, version, its own size and that of what follows; then entries, each with a header that
    begins with kind, version, its own size, the size of the code, and has the architecture at byte 28.
    """
    at = data.find(struct.pack("<I", 0xBA55ED50))
    while at >= 0:
        header, size = struct.unpack_from("<HQ", data, at + 6)
        entry, end, entries = at + header, at + header + size, []
        while entry < end:
            kind, _, own, length = struct.unpack_from("<HHIQ", data, entry)
            entries.append((kind, struct.unpack_from("<I", data, entry + 28)[0]))
            entry += own + length
        yield entries
        at = data.find(struct.pack("<I", 0xBA55ED50), end)


def output_of(tool: str, *arguments: str) -> str:
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} (binutils) is not installed")
    return subprocess.run([tool, *arguments], capture_output=True, text=True, check=True).stdout


def test_code_for_every_architecture():
    wanted = {int(name) for name in build_env.CUDA_ARCHITECTURES}
    if tuple(map(int, CUDA_VERSION.split("."))) < (12, 8):
        wanted.discard(100)  # which nvcc has not heard of
    found = list(fatbins(LIBRARY.read_bytes()))
    assert len(found) == 1  # move.cu
    for entries in found:
        assert {arch for kind, arch in entries if kind == MACHINE_CODE} == wanted
        assert [arch for kind, arch in entries if kind == PTX] == [max(wanted)]


def test_it_needs_nothing_of_cuda_to_load():
    needed = [line for line in output_of("readelf", "-d", str(LIBRARY)).splitlines() if "(NEEDED)" in line]
    assert any("libsmddp_core.so" in line for line in needed)
    assert not [line for line in needed if "cuda" in line.replace("libsmddp_cuda", "") or "nccl" in line]


def test_it_shows_one_name():
    shown = output_of("nm", "-D", "--defined-only", str(LIBRARY)).splitlines()
    assert [line.split()[-1] for line in shown if " T " in line] == ["smddp_make_device_plugin"]
    assert not [line for line in shown if line.split()[-1].startswith(("cuda", "cu", "nccl"))]


def test_another_version_of_the_interface_is_refused():
    loader.core()
    make = ctypes.CDLL(str(LIBRARY)).smddp_make_device_plugin
    make.restype, make.argtypes = ctypes.c_void_p, (ctypes.c_int, ctypes.c_char_p)
    assert make(0, b"") is None


def test_it_says_what_is_missing():
    try:
        ctypes.CDLL("libcuda.so.1")
        pytest.skip("this machine has an NVIDIA driver")
    except OSError:
        pass
    program = "import json; from tests.native_module import core; print(json.dumps(core().gpu_support()))"
    environment = {name: value for name, value in os.environ.items() if name != "SMDDP_GPU_LIBRARY"}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    said = json.loads(done.stdout)
    assert (said["platform"], said["count"]) == (f"CUDA {CUDA_VERSION}", 0)
    assert said["why_none"].startswith("This machine has no NVIDIA driver: libcuda.so.1 cannot be loaded (")
    assert said["why_none"].endswith("(docker run --gpus all).")
