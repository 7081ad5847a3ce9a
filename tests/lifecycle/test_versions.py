"""The versions that must be the same on all ranks, and those in reports."""

from __future__ import annotations

import importlib.metadata
import sys
from typing import NoReturn

import keras
import pytest
import tensorflow as tf

from smddp_tf.lifecycle import versions


def test_versions_are_those_that_are_imported() -> None:
    assert dict(versions.facts()) == {
        "Python": f"{sys.version_info.major}.{sys.version_info.minor}",
        "TensorFlow": tf.__version__.split("+")[0],
        "Keras": keras.__version__,
    }
    shown = versions.shown()
    assert shown["tensorflow"] == tf.__version__.split("+")[0]
    assert shown["python"].startswith(f"{sys.version_info.major}.{sys.version_info.minor}.{sys.version_info.micro}")
    assert shown["mpi"].startswith(("Open MPI v", "MPICH Version: "))
    assert "," not in shown["mpi"]


def test_what_a_builder_has_added_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = {"tensorflow-cpu": "2.21.0+nv24", "keras-nightly": "3.99.1"}

    def version(name: str) -> str:
        return installed[name] if name in installed else missing(name)

    def missing(name: str) -> NoReturn:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    found = dict(versions.facts())
    assert (found["TensorFlow"], found["Keras"]) == ("2.21.0", "3.99.1")
    installed.clear()
    assert dict(versions.facts())["Keras"] == "none that pip knows of"
