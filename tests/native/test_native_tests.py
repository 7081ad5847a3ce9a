"""The tests in C++, `tests/<folder>/test_<unit>.cc`: one case here for each file (`make build`; CONTRIBUTING.md)."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.native import PROGRAM, sources
from tests.native_programs import ROOT

pytestmark = pytest.mark.native


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    if not PROGRAM.exists():
        pytest.skip("The tests in C++ are not built: doctest is missing, or `make build` has not run.")
    command = [str(PROGRAM), "--no-colors=true", *arguments]
    return subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=120, check=False)


@pytest.mark.parametrize("source", sources(), ids=lambda source: str(source.relative_to(ROOT / "tests")))
def test_file(source: Path) -> None:
    done = run(f"--source-file=*{source.relative_to(ROOT)}")
    assert done.returncode == 0, done.stdout + done.stderr
    cases = re.search(r"test cases: +(\d+) ", done.stdout)
    assert cases is not None
    assert int(cases[1]) > 0, f"{PROGRAM.name} has no case of this file: build it with `make build`."


def test_names_are_given_once() -> None:
    """A failure is found by the name of its case."""
    names = [line for line in run("--list-test-cases").stdout.splitlines() if not line.startswith(("[doctest]", "==="))]
    assert names
    assert [name for name in names if names.count(name) > 1] == []
