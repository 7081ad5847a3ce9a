"""libsmddp_cuda.so as it was built here: its code, what it needs to load, and what it says without a driver."""

import ctypes
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import smddp_tf
from smddp_tf import _build_info
from smddp_tf._native import loader
from tests.cuda import driver
from tests.tools.build_environment import build_env

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = Path(smddp_tf.__file__).with_name("libsmddp_cuda.so")
CUDA_VERSION = getattr(_build_info, "CUDA_VERSION", "")
CUDA_MAJOR, CUDA_MINOR = (int(part) for part in (CUDA_VERSION or "0.0").split("."))


@pytest.fixture(autouse=True)
def built_with_cuda():
    if not CUDA_VERSION:
        pytest.skip("smddp_tf was built without CUDA: there is no compiler for it here, or SMDDP_CUDA=off")


def output_of(tool: str, *arguments: str) -> str:
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} (binutils) is not installed")
    return subprocess.run([tool, *arguments], capture_output=True, text=True, check=True).stdout


def images() -> dict[str, bytes]:
    """The compiled kernels in the library, by their names there, and what follows each: sm_90; compute_100 for PTX."""
    sections = output_of("readelf", "-SW", str(LIBRARY))
    address, offset = (int(word, 16) for word in re.search(r"\.rodata +PROGBITS +(\w+) (\w+)", sections).groups())
    found = re.findall(r"^(\w+) r smddp_image_(\w+)$", output_of("nm", "-n", str(LIBRARY)), re.MULTILINE)
    data = LIBRARY.read_bytes()
    begins = [int(at, 16) - address + offset for at, _ in found]
    return {name: data[begin:end] for (_, name), begin, end in zip(found, begins, [*begins[1:], None])}


KERNELS = {f"smddp_move_{to}_{of}" for to in range(4) for of in range(4)} | {f"smddp_move_{n}_{n}" for n in range(4, 8)}


def test_code_for_every_architecture():
    unknown = set()
    if CUDA_MAJOR == 13:
        unknown = {"70"}
    elif CUDA_MINOR < 8:
        unknown = {"100"}
    wanted = [name for name in build_env.CUDA_ARCHITECTURES if name not in unknown]
    found = images()
    assert set(found) == {f"sm_{name}" for name in wanted} | {f"compute_{wanted[-1]}"}
    for name, image in found.items():
        kernels = {word.decode() for word in re.findall(rb"\bsmddp_move_\d_\d\b", image)}
        assert kernels == KERNELS
        if name.startswith("sm_"):
            assert image.startswith(b"\x7fELF")
        else:
            assert f".target sm_{wanted[-1]}\n".encode() in image[:1000]


def test_the_wheels_kernels_are_compiled_with_nvrtc(tmp_path):
    """Without an NVRTC here there is nothing to try; tools/build_wheel.py downloads it."""
    libraries = [*(ROOT / "build" / "wheel").rglob("libnvrtc.so.12"), *build_env._nvrtcs(None)]
    if not libraries:
        pytest.skip("no NVRTC is installed")
    image = tmp_path / "move.cubin"
    command = [sys.executable, build_env.NVRTC, f"--library={libraries[0]}", "-cubin", "-arch=sm_75", "-std=c++17"]
    source = ROOT / "tf_ops/cuda/kernels/move.cu"
    subprocess.run([*command, f"-I{ROOT / 'tf_ops'}", "-o", image, source], check=True)
    assert {word.decode() for word in re.findall(rb"\bsmddp_move_\d_\d\b", image.read_bytes())} == KERNELS


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


def support(environment: dict[str, str]) -> dict[str, object]:
    """What a process with these variables says of its GPUs."""
    program = "import json; from tests.native_module import core; print(json.dumps(core().gpu_support()))"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_it_says_what_is_missing():
    try:
        ctypes.CDLL("libcuda.so.1")
        pytest.skip("this machine has an NVIDIA driver")
    except OSError:
        pass
    said = support({name: value for name, value in os.environ.items() if name != "SMDDP_GPU_LIBRARY"})
    assert (said["platform"], said["count"]) == (f"CUDA {CUDA_VERSION}", 0)
    assert said["why_none"].startswith("This machine has no NVIDIA driver: libcuda.so.1 cannot be loaded (")
    assert said["why_none"].endswith("(docker run --gpus all).")


NEEDED = {12: "525 (CUDA 12.0)", 13: "580 (CUDA 13.0)"}


@pytest.mark.parametrize(
    ("cuda", "found"),
    [
        (11040, "470 (CUDA 11.4)"),
        (11080, "520 (CUDA 11.8)"),
        (12040, "550 (CUDA 12.4)"),
        (12090, "575 (CUDA 12.9)"),
        (10020, "one of CUDA 10.2"),
    ],
)
def test_a_driver_that_is_too_old(tmp_path, cuda, found):
    said = support(driver.environment(tmp_path, cuda, "90"))
    if cuda >= CUDA_MAJOR * 1000:
        assert said["count"] == 1
    else:
        assert said["count"] == 0
        assert f"needs driver >= {NEEDED[CUDA_MAJOR]}, found {found}. " in said["why_none"]


def test_check_build_says_which_driver_is_needed_and_found(tmp_path):
    program = "from smddp_tf.run.cli.check_build import build_report; print(build_report())"
    environment = driver.environment(tmp_path, 11080, "90")
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert (
        f"No GPU: The GPU part of smddp_tf needs driver >= {NEEDED[CUDA_MAJOR]}, found 520 (CUDA 11.8)" in done.stdout
    )


@pytest.mark.parametrize(
    ("gpus", "count"),
    [
        ("75", 1),
        ("86,89,90", 3),
        ("103", 1),
        ("120", 1),
        ("60,80", 1),
        ("80,60,61", 1),
        ("72", 1 if CUDA_MAJOR == 12 else 0),
    ],
)
def test_gpus_count_for_which_there_are_kernels(tmp_path, gpus, count):
    assert support(driver.environment(tmp_path, CUDA_MAJOR * 1000, gpus))["count"] == count


def test_a_gpu_without_kernels_is_named(tmp_path):
    said = support(driver.environment(tmp_path, CUDA_MAJOR * 1000, "60"))
    oldest = "7.0" if CUDA_MAJOR == 12 else "7.5"
    words = f"GPU 0 (Tesla P100) has compute capability 6.0; this build of smddp_tf needs {oldest} or newer"
    assert (said["count"], said["why_none"]) == (0, f"{words} (docs/gpu.md).")


def test_a_driver_that_shows_no_gpu(tmp_path):
    said = support(driver.environment(tmp_path, CUDA_MAJOR * 1000, ""))
    assert said["count"] == 0
    assert "CUDA failed in cuInit: no CUDA-capable device is detected (CUDA_ERROR_NO_DEVICE)." in said["why_none"]
    assert "CUDA_VISIBLE_DEVICES hides them" in said["why_none"]
