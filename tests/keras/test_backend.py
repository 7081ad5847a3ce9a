"""Which Keras this process trains with."""

from __future__ import annotations

import importlib.util

import pytest

from tests.support.mpirun import launch

pytestmark = [
    pytest.mark.launches,
    pytest.mark.skipif(
        importlib.util.find_spec("tf_keras") is None, reason="tf_keras is not installed; `make setup` brings it"
    ),
]
LEGACY = {"TF_USE_LEGACY_KERAS": "1"}


def test_without_tf_keras_the_error_says_what_to_install() -> None:
    code = "import sys; sys.modules['tf_keras'] = None; import smddp_tf.keras"
    finished = launch(["-c", code], None, timeout=90, env=LEGACY)
    assert finished.returncode != 0
    assert "ImportError: `tf.keras` cannot be imported. With TF_USE_LEGACY_KERAS=1 it is Keras 2" in finished.output
    assert "pip install --no-deps 'tf_keras==2." in finished.output
