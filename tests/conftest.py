"""What every test run has in common."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest

from tests.support.marks import PROGRAMS, TESTS, marks_of

# Read by TensorFlow when it is imported, so before any test file is.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")  # oneDNN's sums depend on the shape of the batch

# A sixth of the time in which TensorFlow is imported is spent looking for garbage that is not there.
gc.set_threshold(50_000, 20, 50)


def pytest_report_header(config: pytest.Config) -> str | None:
    if config.pluginmanager.hasplugin("tests.mpi_plugin"):
        return None
    return "files marked `ranks` run under mpirun, started by tests/test_rank_suites.py"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Files marked `ranks` are collected under mpirun, and only those; folders of programs when they are named."""
    if collection_path.parent == TESTS and collection_path.name in PROGRAMS:
        named = [Path(argument.split("::")[0]).resolve() for argument in config.args]
        return None if any(collection_path in (each, *each.parents) for each in named) else True
    if not collection_path.name.startswith("test_"):
        return None
    under_mpirun = config.pluginmanager.hasplugin("tests.mpi_plugin")
    return None if ("ranks" in marks_of(collection_path)) == under_mpirun else True
