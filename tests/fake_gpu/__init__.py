"""A GPU in host memory: tf_ops/device as a shared library, for machines without a GPU (see settings.h).

    os.environ["SMDDP_GPU_LIBRARY"] = str(fake_gpu.build())

Compiled by the tests, once for each state of its sources, into build/fake_gpu.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
NATIVE = ROOT / "tf_ops"
sys.path.insert(0, str(ROOT / "tools"))

import build_env  # noqa: E402

_FLAGS = ("-std=c++17", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-pthread")
_ENGINE = (
    "core/dtype.cc",
    "core/log.cc",
    "core/status.cc",
    "compute/fused_view.cc",
    "cuda/kernels/jobs.cc",
    "cuda/kernels/on_host.cc",
    "cuda/nccl_errors.cc",
    "cuda/nccl_group.cc",
    "cuda/nccl_library.cc",
)
_OWN = (
    *("c_api.cc", "device.cc", "group_c_api.cc", "groups.cc", "kernels.cc"),
    *("memory.cc", "settings.cc", "stream.cc"),
)
_FAST = ("on_host",)  # what moves every byte; the others are compiled sooner without optimisation


def build() -> Path:
    """Compiles the fake GPU unless that was done before, and returns the library for SMDDP_GPU_LIBRARY.

    Raises:
        RuntimeError: the compiler failed; its words are in the message.
    """
    return compile_library("libfake_gpu.so", [*(NATIVE / name for name in _ENGINE), *(HERE / name for name in _OWN)])


def build_nccl() -> Path:
    """Compiles the fake NCCL (fake_nccl.cc) unless that was done before; for SMDDP_NCCL_LIBRARY.

    Raises:
        RuntimeError: the compiler failed; its words are in the message.
    """
    return compile_library("libfake_nccl.so", [HERE / "fake_nccl.cc"])


def compile_library(name: str, sources: Sequence[Path]) -> Path:
    """Compiles `sources` into a library below build/fake_gpu, once for each state of what they may include.

    Any number of processes may call this at once.

    Raises:
        RuntimeError: the compiler failed; its words are in the message.
    """
    into = ROOT / "build" / "fake_gpu"
    into.mkdir(parents=True, exist_ok=True)
    library = into / f"{_state(name, sources)}-{name}"
    with open(into / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not library.exists():
            for old in into.glob(f"*-{name}"):
                old.unlink()
            _compile(library, sources)
    return library


def load() -> ctypes.CDLL:
    """The fake GPU's own functions (c_api.cc), typed. The engine in this process uses the same GPU."""
    library = ctypes.CDLL(str(build()))
    handle, number, size, text = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t, ctypes.c_char_p
    for name, result, arguments in (
        ("error", text, ()),
        ("reload", None, ()),
        ("count", ctypes.c_longlong, (text,)),
        ("device", handle, (number,)),
        ("allocate", handle, (number, size)),
        ("free", None, (number, handle)),
        ("allocate_pinned", handle, (number, size)),
        ("free_pinned", None, (number, handle)),
        ("read", None, (handle, handle, size)),
        ("write", None, (handle, handle, size)),
        ("export", number, (number, handle, text, size)),
        ("import", handle, (number, text)),
        ("unimport", None, (number, handle)),
        ("make_stream", handle, (number,)),
        ("destroy_stream", None, (number, handle)),
        ("make_event", handle, (number,)),
        ("destroy_event", None, (number, handle)),
        ("record", number, (number, handle, handle)),
        ("wait", number, (number, handle, handle)),
        ("done", number, (number, handle)),
        ("copy", number, (number, handle, handle, size, handle)),
        ("zero", number, (number, handle, size, handle)),
        ("synchronize", number, (number, handle, ctypes.c_double)),
    ):
        function = getattr(library, f"fake_gpu_{name}")
        function.restype, function.argtypes = result, arguments
    return library


def _state(name: str, sources: Sequence[Path]) -> str:
    seen = hashlib.sha256(repr((name, _FLAGS, [str(source) for source in sources])).encode())
    folders = [HERE, *(NATIVE / folder for folder in ("core", "compute", "device", "cuda"))]
    headers = [file for folder in folders for file in folder.rglob("*.h")]
    for file in [*sources, *sorted(headers)]:
        seen.update(file.read_bytes())
    return seen.hexdigest()[:16]


def _compile(library: Path, sources: Sequence[Path]) -> None:
    compiler = build_env.find_compiler()
    include = [f"-I{NATIVE}", f"-I{HERE}"]

    def one(source: Path) -> str:
        made = library.with_name(f"{library.name}.{source.stem}.o")
        _run([compiler, *_FLAGS, "-O1" if source.stem in _FAST else "-O0", *include, "-c", str(source), "-o", str(made)])
        return str(made)

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        objects = list(pool.map(one, sources))
    made = library.with_name(f".{library.name}.new")
    _run([compiler, "-shared", "-pthread", "-Wl,--no-undefined", *objects, "-ldl", "-o", str(made)])
    made.replace(library)
    for each in objects:
        os.unlink(each)


def _run(command: list[str]) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}\n{done.stdout}")
