"""`smddprun --doctor`: its lines and exit codes; what it says of a script for Horovod, after it has run it."""

from __future__ import annotations

import re
from pathlib import Path

from tests.launch.mpirun import SCRIPTS, Finished, launch


def doctor(*arguments: str | Path) -> Finished:
    return launch(["-m", "smddp_tf.run", "--doctor", *arguments], ranks=None, timeout=300)


def levels(output: str) -> dict[str, str]:
    """By what was looked at: "ok", "warning" or "error"."""
    return {what: level for level, what in re.findall(r"^(ok|warning|error) +(\S+(?: \S+)?)  ", output, re.MULTILINE)}


def test_every_line_has_a_level_and_a_script_that_needs_no_run_is_not_run(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import smddp_tf as hvd\nraise SystemExit('it was run')\n")
    done = doctor("python", script, "--epochs", "3").check()
    found = levels(done.output)
    assert {"versions", "MPI", "network", "GPUs", "shared memory", "clock", "memory", "/dev/shm"} <= set(found)
    assert found["versions"] == found["MPI"] == found["shared memory"] == found["host names"] == "ok"
    assert "2 rank(s) on this node" in done.output
    assert "does not import Horovod, and was not run" in done.output
    assert "it was run" not in done.output


def test_a_script_for_horovod_is_run_with_and_without_its_reductions() -> None:
    done = doctor(SCRIPTS / "horovod_digits.py", "--epochs", "2")
    assert done.returncode == 1, done.output
    found = levels(done.output)
    assert (found["with Horovod"], found["with smddp_tf"]) == ("error", "ok"), done.output
    today = "your script trains unsynchronised with Horovod today: weights of the 2 ranks differ by up to "
    [apart] = re.findall(rf"{today}(\S+) after 3 steps", done.output)
    assert float(apart) > 1e-3
    assert "weights of the 2 ranks differ by up to 0 after 3 steps." in done.output
    assert "Horovod itself was not run" in done.output
    assert "smddprun --as horovod" in done.output
    assert "fit has come to its end" not in done.output


def test_what_cannot_be_looked_at_is_said(tmp_path: Path) -> None:
    missing = doctor(tmp_path / "no.py")
    assert missing.returncode == 1
    assert "cannot read the script" in missing.output
