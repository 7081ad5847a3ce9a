"""A GPU in host memory: tf_ops/device as a shared library, for machines without a GPU (see settings.h).

    os.environ["SMDDP_GPU_LIBRARY"] = str(fake_gpu.build())

Compiled by the tests, once for each state of its sources, into build/fake_gpu. FAKE_GPU_FLAGS in the environment
adds to the compiler's flags: sanitizers.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
NATIVE = ROOT / "tf_ops"
sys.path.insert(0, str(ROOT / "tools"))

import build_env  # noqa: E402

BUILD = ROOT / "build" / "fake_gpu"

_FLAGS = (
    *("-std=c++17", "-fPIC", "-fvisibility=hidden", "-ffp-contract=off", "-Wall", "-Wextra", "-pthread"),
    *os.environ.get("FAKE_GPU_FLAGS", "").split(),
)
OF_ENGINE = ("core/dtype.cc", "core/process/log.cc", "core/status.cc", "compute/fused_view.cc")
_ADAPTER = ("kernels/jobs.cc", "nccl/nccl_errors.cc", "nccl/nccl_group.cc", "nccl/nccl_library.cc")
_OWN = (
    *("c_api.cc", "calls.cc", "device.cc", "group_c_api.cc", "groups.cc", "kernels.cc"),
    *("memory.cc", "no_compute.cc", "on_host.cc", "settings.cc", "stream.cc"),
)
_LINK = (build_env.find_compiler(), *_FLAGS, "-shared", "-Wl,--no-undefined")
_KERNELS = "gpu/cuda_kernels.cc"  # for tests of the kernels alone
_INCLUDED = (HERE, HERE.parent / "fake_cuda", *(NATIVE / folder for folder in ("core", "compute", "device", "cuda")))
_FAST = ("on_host", "move")  # what moves every byte; the others are compiled sooner without optimisation


def build() -> Path:
    """Compiles the fake GPU unless that was done before, and returns the library for SMDDP_GPU_LIBRARY.

    With FAKE_GPU_INTERFACE=cuda it is that of tests/fake_cuda, which has the same functions but those of the kernels.

    Raises:
        RuntimeError: the compiler failed; its words are in the message.
    """
    if os.environ.get("FAKE_GPU_INTERFACE") == "cuda":
        from tests import fake_cuda

        return fake_cuda.build()
    folders = ((NATIVE, OF_ENGINE), (NATIVE / "cuda", _ADAPTER), (HERE, _OWN), (ROOT / "tests", (_KERNELS,)))
    sources = [folder / name for folder, names in folders for name in names]
    return compile_library("libfake_gpu", sources)


def build_nccl() -> Path:
    """Compiles the fake NCCL (see fake_nccl.cc) unless that was done before; for SMDDP_NCCL_LIBRARY.

    Raises:
        RuntimeError: the compiler failed; its words are in the message.
    """
    sources = ("fake_nccl.cc", "nccl_collectives.cc", "nccl_members.cc")
    return compile_library("libfake_nccl", [HERE / name for name in sources])


def compile_library(
    name: str, sources: Sequence[Path], flags: Mapping[Path, Sequence[str]] | None = None, link: Sequence[str] = ()
) -> Path:
    """Compiles `sources` into a library below build/fake_gpu, once for each state of what they may include.

    Any number of processes may call this at once.

    Args:
        name: the library's, without its ending.
        sources: the files.
        flags: more for the compiler, of some of them.
        link: more for the linker.

    Raises:
        RuntimeError: the compiler failed; its words are in the message.
    """
    into, flags = BUILD, flags or {}
    into.mkdir(parents=True, exist_ok=True)
    headers = _state(
        sorted(file for folder in _INCLUDED for file in folder.rglob("*") if file.suffix in (".h", ".inc"))
    )
    states = {source: _state([source], headers, *flags.get(source, ())) for source in sources}
    objects = {into / f"{name}-{source.stem}-{state}.o": source for source, state in states.items()}
    library = into / f"{name}-{_state([], *link, *(made.name for made in objects))}.so"
    with open(into / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not library.exists():
            with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
                compile_one = functools.partial(_compile, _common(into))
                list(pool.map(compile_one, objects.values(), objects, (flags.get(each, ()) for each in sources)))
            _run([*_LINK, *link, *map(str, objects), "-ldl"], library)
            for old in [*into.glob(f"{name}-*.so"), *(old for made in objects for old in into.glob(_others(made)))]:
                if old not in (library, *objects):
                    old.unlink()
    return library


def _state(files: Sequence[Path], *more: str) -> str:
    seen = hashlib.sha256(repr((_FLAGS, more)).encode())
    for file in files:
        seen.update(file.read_bytes())
    return seen.hexdigest()[:16]


def _others(made: Path) -> str:
    return made.name[: -len("0123456789abcdef.o")] + "?" * 16 + ".o"


def _common(into: Path) -> Path:
    """A copy of std.h with g++'s precompiled form beside it; other compilers read the copy."""
    header = HERE / "std.h"
    copy = into / f"std-{_state([header])}.h"
    compiled = copy.with_name(f"{copy.name}.gch")
    if not compiled.exists():
        shutil.copy(header, copy)
        _run([build_env.find_compiler(), *_FLAGS, "-O0", "-x", "c++-header", str(copy)], compiled)
    return copy


def _compile(common: Path, source: Path, made: Path, flags: Sequence[str]) -> None:
    if not made.exists():
        level = ["-O1"] if source.stem in _FAST else ["-O0", "-include", str(common)]
        include = [f"-I{NATIVE}", f"-I{HERE}"]
        _run([build_env.find_compiler(), *_FLAGS, *level, *flags, *include, "-c", str(source)], made)


def _run(command: list[str], made: Path) -> None:
    """Runs a compiler that makes a file; half of one is never seen."""
    half = made.with_name(f".{made.name}.half")
    done = subprocess.run([*command, "-o", str(half)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}\n{done.stdout}")
    half.replace(made)
