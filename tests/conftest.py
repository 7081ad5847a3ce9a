"""What every test run has in common."""

from __future__ import annotations

import os

import pytest

# Read by TensorFlow when it is imported, so before any test file is.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")  # oneDNN's sums depend on the shape of the batch


def pytest_report_header(config: pytest.Config) -> str | None:
    if config.pluginmanager.hasplugin("tests.mpi_plugin"):
        return None
    return "tests/parallel runs under mpirun, started by tests/launch/test_parallel_suites.py"
