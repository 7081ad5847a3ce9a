"""Jobs that the tests of the launcher start."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.support.mpirun import SCRIPTS, launch

PATIENCE = 120.0


RANKS = SCRIPTS / "ranks_without_tensorflow.py"


def smddprun(*arguments: str | Path, timeout: float = PATIENCE, **env: str):
    return launch(["-m", "smddp_tf.run", *arguments], ranks=None, timeout=timeout, env=env)


# `python -m` would import from the current folder itself.
LAUNCHER = [sys.executable, "-c", "import sys; del sys.path[0]; from smddp_tf.run.cli import main; main()", "-np", "2"]
