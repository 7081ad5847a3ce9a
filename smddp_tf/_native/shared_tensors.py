"""TensorFlow's large tensors in memory that is kept between steps and that the ranks of a node map."""

from __future__ import annotations

import ctypes
import os
import sys

from smddp_tf._native import loader

_LIBRARY = "libsmddp_tf_allocator.so"
_NONE = (0, 0, -1)


def memory() -> tuple[int, int, int]:
    """Makes TensorFlow keep tensors of 64 KiB and more in shared memory, where it can still be told to.

    It cannot once it has a tensor, and is not where it has not been imported, or SMDDP_SHARED_TENSORS is 0.

    Returns:
        Address, bytes and file descriptor of that memory; (0, 0, -1) where there is none.

    Raises:
        ValueError: SMDDP_SHARED_TENSORS is neither on nor off.
    """
    if not loader.core().switch("SMDDP_SHARED_TENSORS") or "tensorflow" not in sys.modules:
        return _NONE
    try:
        library = ctypes.CDLL(str(loader.op_folder() / _LIBRARY))
    except (ImportError, OSError):  # without the ops: said where an operation is used
        return _NONE
    # Only an address space: pages exist, and count for the container, when a tensor is in them.
    capacity = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    data, size = ctypes.c_void_p(), ctypes.c_size_t()
    file = library.smddp_share_tensors(ctypes.c_size_t(capacity), ctypes.byref(data), ctypes.byref(size))
    return _NONE if file < 0 else (data.value or 0, size.value, file)
