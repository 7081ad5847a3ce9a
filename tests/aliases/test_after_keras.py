"""`smddprun --keras-distribution`: a program that imports Keras only; and what the import does with other backends."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.mpirun import ROOT, environment

pytestmark = pytest.mark.launches

OTHER_BACKEND = """
import sys, types
keras = types.ModuleType("keras")  # neither JAX nor PyTorch is installed here
keras.config = types.SimpleNamespace(backend=lambda: "jax")
keras.__version__ = "3.15.1"
sys.modules["keras"] = keras
import smddp_tf.keras.distribution
import smddp_tf.keras as hvd
try:
    hvd.init()
except ImportError as error:
    print(error)
"""


def smddprun(*arguments: str | Path) -> str:
    command = [sys.executable, "-m", "smddp_tf.run", *map(str, arguments)]
    options = {"cwd": ROOT, "env": environment(), "capture_output": True, "text": True}
    done = subprocess.run(command, timeout=180, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_one_process_and_several_end_alike() -> None:
    script = Path(__file__).with_name("keras_distribution.py")
    alone = re.findall(r"1 processes: (\S+)\.", smddprun("--keras-distribution", script))
    together = re.findall(r"2 processes: (\S+)\.", smddprun("--keras-distribution", "-np", "2", script))
    assert together == alone * 2


def test_a_program_for_one_process_trains_on_all_ranks() -> None:
    script = Path(__file__).with_name("plain_keras.py")
    alone = re.findall(r"rows \[8\], weights (\S+)\.", smddprun("--keras-distribution", script))
    together = smddprun("--keras-distribution", "-np", "2", script)
    assert re.findall(r"rows \[4\], weights (\S+)\.", together) == alone * 2 != []
    assert re.findall(r"child (.*)\.", together) == ["None"]


def test_a_loss_scale_in_the_first_step() -> None:
    output = smddprun("-np", "2", Path(__file__).with_name("keras_distribution_scaled.py"))
    assert re.findall(r"scale (\S+)\.", output) == ["16384", "16384"]


def test_another_backend_is_left_alone() -> None:
    done = subprocess.run(
        [sys.executable, "-c", OTHER_BACKEND],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert "Keras computes with jax, which has a keras.distribution of its own" in done.stderr
    assert "smddp_tf.keras needs Keras with the TensorFlow backend. Found: the 'jax' backend." in done.stdout
