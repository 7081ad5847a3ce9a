"""The launcher's own programs import nothing from the current folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from smddp_tf.run.rank.processes import isolated
from tests.run.started import LAUNCHER, PATIENCE
from tests.support.mpirun import environment

pytestmark = pytest.mark.launches


def test_no_code_of_the_current_folder_and_no_home_and_a_program_on_standard_input(tmp_path: Path) -> None:
    for name in ("random", "secrets", "select", "struct", "token", "runpy", "socket"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('code of the current folder')\n")
    program = (
        "import sys; sys.path[:1] = []; import os, time\n"
        "print('ran', os.environ['RANK'], os.environ['PYTHONFAULTHANDLER'], len(sys.stdin.read()))"
    )
    done = subprocess.run(
        [*LAUNCHER, sys.executable, "-c", program], cwd=tmp_path, input="x" * 200_000, text=True, capture_output=True,
        env={**environment(), "HOME": ""}, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["[0]<stdout>: ran 0 1 200000", "[1]<stdout>: ran 1 1 0"]


def test_a_supervisor_starts_without_the_package_itself():
    """What that imports would take most of the time in which many ranks start."""
    words = isolated("smddp_tf.run.rank.supervisor", sys.executable, bare=True)
    imported, _, runs_it = words[-1].rpartition("; ")
    assert runs_it == "main()"
    words[-1] = f"{imported}; print(*sorted(sys.modules))"
    modules = subprocess.run(words, capture_output=True, text=True, env=environment(), timeout=PATIENCE, check=True)
    loaded = modules.stdout.split()
    assert "smddp_tf.run.rank.supervisor" in loaded
    assert not {"smddp_tf.basics", "smddp_tf._native.loader", "dataclasses", "inspect", "pathlib"} & {*loaded}
