"""The engine as tests and benchmarks use it: what smddp_tf._core has, and the test access of _smddp_test_core.

The second module (tests/bindings) is part of no wheel. `make build` and an editable installation put it beside this
file; `setup.py build_tests --into FOLDER` puts it into FOLDER/tests, where it is found when FOLDER holds smddp_tf.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType, SimpleNamespace

import smddp_tf
from smddp_tf._native import loader

NAME = "_smddp_test_core"
ALLREDUCE, BROADCAST, ALLGATHER, BARRIER, ALLTOALL, REDUCESCATTER = 0, 1, 2, 3, 5, 6  # session.h, RequestKind
AVERAGE, SUM = 0, 1


@functools.cache
def core() -> SimpleNamespace:
    """The functions and classes of both modules, loaded on the first call.

    Raises:
        ImportError: smddp_tf is not built, or was built without the test access.
    """
    shipped = loader.core()  # first: it brings the engine into the process, and EngineError
    modules = (shipped, _test_access())
    return SimpleNamespace(
        **{name: thing for module in modules for name, thing in vars(module).items() if not name.startswith("__")}
    )


def _test_access() -> ModuleType:
    folders = [Path(smddp_tf.__file__).parents[1] / "tests", Path(__file__).parent]
    spec = PathFinder.find_spec(NAME, [str(folder) for folder in folders])
    if spec is None or spec.loader is None:
        raise ImportError(f"{NAME} is not built. Build it with: {sys.executable} setup.py build_tests")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def submit(kind, name, pairs, shape=None, op=SUM, root=0, splits=(), process_set=0):
    """Hands a request of arrays to the engine, by pairs of what is read and what is written; `wait` of it waits."""
    tensors = [
        (source.dtype.name, list(shape or source.shape), source.ctypes.data, target.ctypes.data, target.size)
        for source, target in pairs
    ]
    return loader.core().submit(kind, name, tensors, pairs, (op, ""), root, list(splits), process_set)
