"""`smddprun --doctor`: its lines and exit codes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.mpirun import launch

pytestmark = pytest.mark.launches


def levels(output: str) -> dict[str, str]:
    """By what was looked at: "ok", "warning" or "error"."""
    return {what: level for level, what in re.findall(r"^(ok|warning|error) +(\S+(?: \S+)?)  ", output, re.MULTILINE)}


def test_every_line_has_a_level_and_the_command_is_not_run(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import smddp_tf as hvd\nraise SystemExit('it was run')\n")
    done = launch(
        ["-m", "smddp_tf.run", "--doctor", "python", script, "--epochs", "3"], ranks=None, timeout=300
    ).check()
    found = levels(done.output)
    assert {"versions", "MPI", "network", "GPUs", "shared memory", "clock", "memory", "/dev/shm"} <= set(found)
    assert found["versions"] == found["MPI"] == found["shared memory"] == found["host names"] == "ok"
    assert "2 rank(s) on this node" in done.output
    assert "--doctor does not run the command" in done.output
    assert "it was run" not in done.output
