"""A fake CUDA: the functions of libcuda.so.1 that tf_ops/cuda calls, on the GPU in host memory.

The sources of tf_ops/cuda themselves are compiled for it, the kernels too: by the C++ compiler, with shim.h in front.
So a test of the engine on it runs every line of the adapter but the machine code. contexts.h says what can be set.

    FAKE_GPU_INTERFACE=cuda python -m pytest tests/gpu
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from pathlib import Path

from tests import fake_gpu
from tests.fake_cuda import device_code

HERE = Path(__file__).resolve().parent
_CUDA = fake_gpu.NATIVE / "cuda"
_OWN = ("contexts.cc", "cuda_c_api.cc", "kernel_launch.cc", "libcuda.cc")
# The parts of the fake GPU that are below its interface.
_OF_FAKE_GPU = (
    *("c_api.cc", "calls.cc", "group_c_api.cc", "groups.cc"),
    *("memory.cc", "no_compute.cc", "on_host.cc", "settings.cc", "stream.cc"),
)


@functools.cache
def why_not() -> str:
    """Why it cannot be built on this machine; "" if it can."""
    return fake_gpu.build_env.find_cuda(fake_gpu.build_env.find_compiler()).why_none


def build() -> Path:
    """Compiles the adapter on the fake CUDA unless that was done before, and returns the library for SMDDP_GPU_LIBRARY.

    Raises:
        RuntimeError: the compiler failed; its words are in the message. Or there are no headers of CUDA here.
    """
    found = fake_gpu.build_env.find_cuda(fake_gpu.build_env.find_compiler())
    if found.why_none:
        raise RuntimeError(f"the fake CUDA needs the headers of a CUDA toolkit: {found.why_none}")
    elements = device_code.rewritten((_CUDA / "kernels" / "elements.h").read_text(encoding="utf-8"))
    rewritten = fake_gpu.BUILD / f"device_code-{hashlib.sha256(elements.encode()).hexdigest()[:16]}"
    _write(rewritten / "cuda" / "kernels" / "elements.h", elements)
    images = _images(found.architectures)
    generated = fake_gpu.BUILD / f"images-{hashlib.sha256(images.encode()).hexdigest()[:16]}"
    _write(generated / "cuda_kernel_images.inc", images)
    kernels = sorted((_CUDA / "kernels").glob("*.cu"))
    sources = [
        *(fake_gpu.NATIVE / name for name in fake_gpu.OF_ENGINE),
        *(fake_gpu.HERE / name for name in _OF_FAKE_GPU),
        *(HERE / name for name in _OWN),
        *(file for folder in ("", "nccl", "kernels") for file in sorted((_CUDA / folder).glob("*.cc"))),
        *kernels,
    ]
    common = (f"-isystem{found.include_dir}", f"-I{HERE}", f"-I{generated}")
    of_kernels = (f"-I{rewritten}", "-include", str(HERE / "shim.h"), "-x", "c++")
    flags = {source: (*of_kernels, *common) if source in kernels else common for source in sources}
    return fake_gpu.compile_library("libfake_cuda", sources, flags, ("-Wl,--wrap=dlopen",))


def _images(architectures: Sequence[str]) -> str:
    """What tf_ops/cuda/CMakeLists.txt generates, with words for images (kernel_launch.h)."""
    rows = [f'{{{name}, true, "machine code {name}"}}' for name in architectures]
    rows.append(f'{{{architectures[-1]}, false, "PTX {architectures[-1]}"}}')
    return f"#define SMDDP_IMAGES {', '.join(rows)}\n"


def _write(file: Path, text: str) -> None:
    """Whole or not at all: other processes may read it."""
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        half = file.with_name(f".{file.name}.{fake_gpu.os.getpid()}")
        half.write_text(text, encoding="utf-8")
        half.replace(file)
