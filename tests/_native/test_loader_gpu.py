"""What the loader says where TensorFlow has a GPU, and where it finds NCCL."""

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from smddp_tf._native import loader

ROOT = Path(__file__).resolve().parents[2]
NO_DRIVER = "The driver (535.1) knows CUDA 12.2."


def found(gpus: int, why: str = "") -> dict[str, object]:
    """What `_core.build_info` says."""
    return {"gpus": gpus, "why_no_gpu": why}


@pytest.mark.parametrize(
    ("build", "cuda"),
    [
        ({"is_cuda_build": True, "cuda_version": "12.5.1"}, "12.5.1"),
        ({"is_cuda_build": True}, "?"),
        ({"is_cuda_build": False}, ""),
        ({"is_cuda_build": False, "is_rocm_build": True, "rocm_version": "6"}, ""),
    ],
)
def test_the_cuda_of_a_tensorflow(build, cuda):
    assert loader.cuda_of(build) == cuda


@pytest.mark.parametrize(
    ("tensorflows", "what_is_found", "words"),
    [
        ("12.5.1", found(1), ""),
        ("?", found(1), ""),
        ("12.5.1", found(0, NO_DRIVER), r"copies to host memory.*The driver \(535.1\) knows CUDA 12.2."),
        ("", found(0, "irrelevant"), "copies to host memory what the ranks reduce. It is no CUDA device."),
        ("", found(1), "copies to host memory what the ranks reduce. It is no CUDA device."),
    ],
)
def test_what_is_said_where_tensorflow_has_a_gpu(tensorflows, what_is_found, words):
    notice = loader.gpu_notice(tensorflows, what_is_found)
    assert re.search(words, notice) if words else not notice


def test_the_nccl_of_the_wheel_is_found_in_any_site_packages(tmp_path, monkeypatch):
    """Two folders make up the namespace package; the first holds other wheels of the vendor's only."""
    (tmp_path / "user" / "nvidia" / "cudnn" / "lib").mkdir(parents=True)
    library = tmp_path / "venv" / "nvidia" / "nccl" / "lib" / "libnccl.so.2"
    monkeypatch.syspath_prepend(tmp_path / "venv")
    monkeypatch.syspath_prepend(tmp_path / "user")
    assert loader.nccl_library(loader._folders_of("nvidia")) == ""
    library.parent.mkdir(parents=True)
    library.touch()
    importlib.invalidate_caches()
    assert loader.nccl_library(loader._folders_of("nvidia")) == str(library)
    assert loader._folders_of("no_such_package_at_all") == []
    assert "nvidia" not in sys.modules


def test_the_nccl_found_is_a_default_only():
    """In a process of its own: the environment of this one is not to change."""
    program = (
        "from smddp_tf._native import loader; from pathlib import Path; import ctypes\n"
        "loader._GPU_LIBRARY = Path('/')  # anything that is there\n"
        "loader.nccl_library = lambda folders: '/wheel/libnccl.so.2'\n"
        "loader.core(); get = ctypes.CDLL(None).getenv; get.restype = ctypes.c_char_p\n"
        "print(get(b'SMDDP_NCCL_LIBRARY').decode())"
    )
    for own in ("", "/mine/libnccl.so.2"):
        environment = {**os.environ, **({"SMDDP_NCCL_LIBRARY": own} if own else {})}
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60
        )
        assert done.stdout.strip() == (own or "/wheel/libnccl.so.2"), done.stderr
