"""Compiled functions in a process of their own."""

from __future__ import annotations

import pytest

from tests.launch.mpirun import SCRIPTS, launch

pytestmark = pytest.mark.one_process


def test_the_library_is_loaded_after_the_first_compilation() -> None:
    """TensorFlow hands the kernels for XLA out once, at the first compilation; ours come later and by themselves."""
    assert "compiled late" in launch([SCRIPTS / "compiled_late.py"], ranks=None, timeout=90).check().output
