"""The way of a gradient through Python is the one that tools/structure.py prints.

In processes of their own: the way depends on what a program has imported, such as `smddp_tf.keras.distribution`.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path

from tests.launch.mpirun import SCRIPTS, launch

TOOL = Path(__file__).resolve().parents[2] / "tools" / "python_structure.py"
RANKS = 2


def listed() -> list[str]:
    """The value of `STOPS`, without importing the tool."""
    tree = ast.parse(TOOL.read_text(encoding="utf-8"))
    (value,) = (
        node.value for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "STOPS"
    )
    return list(ast.literal_eval(value))


def test_a_gradient_goes_the_way_that_is_listed() -> None:
    job = launch([SCRIPTS / "gradient_path.py", TOOL], RANKS, timeout=120).check()
    for rank in range(RANKS):
        (line,) = (each for each in job.output.splitlines() if each.startswith(f"rank {rank} traced: "))
        assert json.loads(line.partition(": ")[2]) == [listed()]
