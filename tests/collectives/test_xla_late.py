"""Compiled functions in a process of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.mpirun import launch

pytestmark = [pytest.mark.launches, pytest.mark.one_process]


def test_the_library_is_loaded_after_the_first_compilation() -> None:
    """TensorFlow hands the kernels for XLA out once, at the first compilation; ours come later and by themselves."""
    assert (
        "compiled late" in launch([Path(__file__).with_name("compiled_late.py")], ranks=None, timeout=90).check().output
    )
