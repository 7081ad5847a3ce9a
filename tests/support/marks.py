"""How a test file is started, read from its `pytestmark` without importing it.

- `ranks("2", "2+1", ...)`: on every rank of a job, with these arrangements of ranks on nodes (`ARRANGEMENTS`);
- `launches`: starts jobs of its own;
- `native`: the engine's own code in this process, mostly ranks as threads, without TensorFlow;
- none: everything else in this process.

`python -m tests.support.marks MARK` prints the files with a mark which a run of all tests collects.
"""

from __future__ import annotations

import ast
import functools
import re
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
# Ranks, and the number of them on each pretended node; None: one node.
ARRANGEMENTS: dict[str, tuple[int, str | None]] = {
    "1": (1, None),
    "2": (2, None),
    "2+2": (4, "2,2"),
    "2+1": (3, "2,1"),
    "3": (3, None),  # with SMDDP_TEST_FULL only, where every file is run in every arrangement
}
# Folders of programs that tests/conftest.py leaves out unless they are named: they have targets of their own.
PROGRAMS = ("gpu", "gpu_ops", "lab", "recovery", "sagemaker", "starters", "torch_backend")


@functools.cache
def marks_of(file: Path) -> dict[str, tuple[str, ...]]:
    """The names of the file's marks, with their string arguments."""
    text = file.read_text(encoding="utf-8")
    found = re.search(r"^pytestmark = ", text, re.MULTILINE)
    if found is None:
        return {}
    value = next(each.value for each in ast.parse(text[found.start() :]).body if isinstance(each, ast.Assign))
    marks = {}
    for each in value.elts if isinstance(value, ast.List) else [value]:
        name, arguments = (each.func, each.args) if isinstance(each, ast.Call) else (each, [])
        assert isinstance(name, ast.Attribute)
        marks[name.attr] = tuple(argument.value for argument in arguments if isinstance(argument, ast.Constant))
    return marks


def files_with(mark: str, argument: str | None = None) -> list[Path]:
    """The test files that have the mark, with the argument if one is given, sorted."""
    files = sorted(file for file in TESTS.rglob("test_*.py") if mark in marks_of(file))
    return [file for file in files if argument is None or argument in marks_of(file)[mark]]


if __name__ == "__main__":
    print(*(file.relative_to(TESTS.parent) for file in files_with(sys.argv[1]) if file.parent.name not in PROGRAMS))
