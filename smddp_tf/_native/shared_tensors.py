"""TensorFlow's large tensors in memory that the ranks of a node map (`smddprun --shared-tensors`).

The allocator for that is a library for the installed TensorFlow, and must be there before TensorFlow's first tensor.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
import os
import re
import sys
from pathlib import Path
from types import SimpleNamespace

from smddp_tf._native import compiled_ops, prebuilt
from smddp_tf._warn import warn

_LIBRARY = "libsmddp_tf_allocator.so"
_DISTRIBUTION = re.compile(r"tensorflow([-_.](cpu|intel|rocm|aarch64|cpu[-_.]aws))?|tf[-_.]nightly([-_.]cpu)?")

_memory: tuple[int, int, int] = (0, 0, -1)


def memory() -> tuple[int, int, int]:
    """Address, bytes and file descriptor of the memory with TensorFlow's large tensors; (0, 0, -1) without `share`."""
    return _memory


def share() -> None:
    """Makes TensorFlow keep tensors of 64 KiB and more in shared memory; does nothing the second time.

    Where that cannot be, a warning says why, and tensors lie where they always do.
    """
    global _memory
    if _memory[1]:
        return
    if "tensorflow" in sys.modules:
        return _cannot("TensorFlow has been imported already; start the script with `smddprun --shared-tensors`.")
    if os.environ.get("TF_CPU_ALLOCATOR_USE_BFC", "").lower() in ("1", "true"):
        return _cannot("TF_CPU_ALLOCATOR_USE_BFC=1 gives TensorFlow another allocator; unset it.")
    spec = importlib.util.find_spec("tensorflow")
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(spec.submodule_search_locations[0])
    version = _version_beside(folder)
    try:
        ops = prebuilt.op_folder(version) or compiled_ops.compiled(
            SimpleNamespace(__version__=version, __file__=str(folder / "__init__.py"))
        )
        ctypes.CDLL(str(folder / "libtensorflow_framework.so.2"))
        library = ctypes.CDLL(str(ops / _LIBRARY))
    except (ImportError, OSError) as error:
        return _cannot(str(error))
    # Only an address space: pages exist, and count for the container, when a tensor is in them.
    capacity = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    data, size = ctypes.c_void_p(), ctypes.c_size_t()
    file = library.smddp_share_tensors(ctypes.c_size_t(capacity), ctypes.byref(data), ctypes.byref(size))
    if file < 0:
        return _cannot("The system has no memory that can be shared (memfd_create), or too little address space.")
    _memory = (data.value or 0, size.value, file)
    return None


def _version_beside(folder: Path) -> str:
    """Returns TensorFlow's version from the package's metadata, as it must not be imported yet; "" without any."""
    found = importlib.metadata.distributions(path=[str(folder.parent)])
    return next((one.version for one in found if _DISTRIBUTION.fullmatch((one.name or "").lower())), "")


def _cannot(why: str) -> None:
    warn(f"Tensors are not shared between the ranks of this node: {why}", RuntimeWarning)
