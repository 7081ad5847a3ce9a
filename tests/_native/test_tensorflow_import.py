"""What is said where TensorFlow is missing, and the facts of the build."""

from __future__ import annotations

import sys

import pytest

from smddp_tf._native import tensorflow_import


@pytest.mark.parametrize(("version", "minor"), [("2.21.0rc1", "2.21"), ("2.16.1", "2.16"), ("3", "3")])
def test_the_minor_version(version: str, minor: str) -> None:
    assert tensorflow_import.minor_of(version) == minor


def test_the_command_has_the_minor_version_of_the_build() -> None:
    pip = f"{sys.executable} -m pip install"
    assert tensorflow_import.install_command("2.18.1") == f"{pip} 'tensorflow==2.18.*'"
    assert tensorflow_import.install_command("") == f"{pip} 'tensorflow>=2.16'"


def test_facts_that_the_build_has_not_recorded_are_empty() -> None:
    from smddp_tf import _build_info

    assert tensorflow_import.build_info("MPI_LIBRARY") == getattr(_build_info, "MPI_LIBRARY", "")
    assert tensorflow_import.build_info("NO_SUCH_FACT") == ""


def test_a_module_that_lacks_something_else_says_that(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModuleNotFoundError, match=r"smddp_tf\.no_such_module"):
        tensorflow_import.import_with_tensorflow("smddp_tf.no_such_module")
    monkeypatch.setattr(tensorflow_import.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(tensorflow_import, "build_info", lambda name: "")
    with pytest.raises(ImportError, match=r"TensorFlow is not installed; smddp_tf needs 2\.16 or newer"):
        tensorflow_import.import_with_tensorflow("smddp_tf.no_such_module")
