"""The pure parts of `make test-matrix`."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tools import build_env, build_wheel, test_matrix
from tools import matrix_report as report

ROOT = Path(__file__).resolve().parents[2]


def suite(passed: int = 5, returncode: int = 0, **others: int) -> dict[str, Any]:
    return {"counts": {"passed": passed, **others}, "returncode": returncode, "seconds": 1}


def row(minor: str, *, sources: str = "a", problem: str = "", **suites: Any) -> dict[str, Any]:
    found = {"tensorflow": f"{minor}.1", "keras": "3.5.0", "tf_keras": f"{minor}.0", "python": "3.11.7"}
    row = {"minor": minor, "found": {} if problem else found, "suites": suites, "sources": sources}
    return {**row, "problem": problem} if problem else row


def test_the_list_is_what_the_library_builds_for():
    minors = [version.tensorflow for version in report.VERSIONS]
    assert minors == sorted(minors)
    assert minors == list(build_env.TENSORFLOW_MINORS)
    assert {version.python for version in report.VERSIONS} == {"3.9", *build_wheel.PYTHONS, "3.13"}
    assert all(re.fullmatch(r"keras[=>]=3\.[\d.]+", version.keras) and version.why for version in report.VERSIONS)
    newest = [{version.keras, version.other} & {"keras", "keras>=3.15"} for version in report.VERSIONS]
    assert all(len(each) == 1 for each in newest), "each with the newest Keras and with an older one"


def test_chosen():
    assert report.chosen([]) == list(report.VERSIONS)
    assert [version.tensorflow for version in report.chosen(["2.20", "2.16"])] == ["2.16", "2.20"]
    with pytest.raises(ValueError, match=r"among 2\.16, .*Received: 2\.15"):
        report.chosen(["2.16", "2.15"])


@pytest.mark.parametrize(
    ("output", "counts"),
    [
        ("519 passed in 46.00s\n", {"passed": 519}),
        ("== 2 failed, 517 passed, 43 warnings in 88.53s (0:01:28) ==\nmpirun says", {"passed": 517, "failed": 2}),
        ("1 skipped, 3 deselected in 0.10s", {"skipped": 1}),
        ("3 passed, 1 error in 2.00s", {"passed": 3, "error": 1}),
        ("3 passed, 2 errors in 2.00s", {"passed": 3, "error": 2}),
        ("\x1b[31m\x1b[1m1 failed\x1b[0m, \x1b[32m9 passed\x1b[0m\x1b[31m in 3.0s\x1b[0m", {"passed": 9, "failed": 1}),
        ("9 passed in 1.00s\n4 passed in 2.00s", {"passed": 4}),
        ("5 passed through the door\n", {}),
        ("Segmentation fault", {}),
    ],
)
def test_counts(output, counts):
    assert report.counts(output) == counts


@pytest.mark.parametrize(
    ("made", "ok"),
    [
        (suite(), True),
        (suite(skipped=2), True),
        (suite(returncode=1), False),
        (suite(failed=1), False),
        (suite(error=1), False),
        (suite(passed=0, skipped=9), False),
    ],
)
def test_succeeded(made, ok):
    assert report.succeeded(made) is ok
    assert report.row_ok(row("2.16", unit=made)) is ok


def test_a_row_without_suites_or_with_a_problem_has_not_passed():
    assert not report.row_ok(row("2.16"))
    assert not report.row_ok(row("2.16", problem="build failed", unit=suite()))


def test_table():
    lines = report.table(
        [
            row("2.16", unit=suite(208), ranks=suite(519, skipped=3) | {"keras": "3.12.4"}),
            row("2.18", unit=suite(1, returncode=1, failed=2) | {"keras": ""}),
            row("2.20", problem="build failed, see x.log"),
        ]
    ).splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert cells[0] == ["TensorFlow", "Keras", "tf_keras", "Python", "unit", "ranks"]
    assert set("".join(cells[1])) == {"-"}
    assert cells[2] == ["2.16.1", "3.5.0", "2.16.0", "3.11.7", "208 passed", "3.12.4: 519 passed, 3 skipped"]
    assert cells[3] == ["2.18.1", "3.5.0", "2.18.0", "3.11.7", "**1 passed, 2 failed** (exit 1)", "not run"]
    assert cells[4] == ["2.20", "", "", "", "build failed, see x.log", ""]
    assert len({len(line) for line in lines}) == 1


def test_between():
    text = f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n"
    assert report.between(text, "new\n") == f"before\n{report.BEGIN}\nnew\n{report.END}\nafter\n"
    for broken in ("nothing", text + text, f"{report.END} {report.BEGIN}"):
        with pytest.raises(ValueError, match="each once"):
            report.between(broken, "new")


def test_the_page_has_the_markers():
    page = (ROOT / "docs/releases.md").read_text(encoding="utf-8")
    assert report.between(page, page.split(report.BEGIN)[1].split(report.END)[0]) == page


def test_merged_keeps_only_rows_of_the_same_sources():
    old = [row("2.16", sources="a"), row("2.18", sources="b"), row("2.20", sources="a", unit=suite(1))]
    new = [row("2.20", sources="a", unit=suite(2))]
    rows = report.merged(old, new)
    assert [each["minor"] for each in rows] == ["2.16", "2.20"]
    assert rows[1]["suites"]["unit"]["counts"] == {"passed": 2}


def test_a_copy_is_the_checkout_without_what_is_built_and_touches_only_what_changed(tmp_path):
    source, target = tmp_path / "source", tmp_path / "target"
    for name in ("a.cc", "lib/b.py", "lib/c.so", "lib/__pycache__/b.pyc", "build/d.o", ".git/e", "x.egg-info/f"):
        file = source / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)
    test_matrix.copy_changed(source, target)
    (target / "build").mkdir()
    (target / "build" / "kept.o").touch()
    (target / "lib" / "stale.py").touch()
    for file in (target / "a.cc", target / "lib" / "b.py"):
        os.utime(file, (1, 1))
    (source / "a.cc").write_text("changed")
    test_matrix.copy_changed(source, target)
    files = {file.relative_to(target).as_posix() for file in target.rglob("*") if file.is_file()}
    assert files == {"a.cc", "lib/b.py", "build/kept.o"}
    assert (target / "a.cc").read_text() == "changed"
    assert (target / "a.cc").stat().st_mtime > 1
    assert (target / "lib" / "b.py").stat().st_mtime == 1


@pytest.fixture
def commands(monkeypatch):
    """What an environment runs: ["environment", program, ...] and ["install", requirement, ...]."""
    ran: list[list[str]] = []

    def note(environment, log, command, where=None, **variables):
        environment.logs.mkdir(parents=True, exist_ok=True)
        ran.append([log, *map(str, command)])
        return "3.12.4\n"

    monkeypatch.setattr(test_matrix.Environment, "run", note)
    return ran


def test_an_environment_has_the_python_of_the_list_and_is_made_anew_for_another(commands, monkeypatch, tmp_path):
    [version] = report.chosen(["2.16"])
    environment = test_matrix.Environment(version, folder=tmp_path / "2.16")
    monkeypatch.setattr(test_matrix.build_wheel, "interpreter", {version.python: "/opt/its-python"}.get)
    environment.make()
    assert commands[0] == ["environment", "/opt/its-python", "-m", "venv", str(environment.folder)]
    assert {"tensorflow-cpu==2.16.*", "keras==3.3.3"} <= set(commands[1])
    commands.clear()
    environment.make()
    assert not commands
    kept = environment.folder / "kept"
    kept.touch()
    monkeypatch.setattr(test_matrix.build_wheel, "interpreter", lambda version: "")
    environment.make()
    assert commands[0][:2] == ["environment", sys.executable]
    assert not kept.exists()


def test_the_other_keras_is_taken_back_the_next_time(commands, monkeypatch, tmp_path):
    [version] = report.chosen(["2.21"])
    environment = test_matrix.Environment(version, folder=tmp_path / "2.21")
    monkeypatch.setattr(test_matrix.build_wheel, "interpreter", lambda version: f"/opt/python{version}")
    environment.make()
    commands.clear()
    assert environment.change_keras() == "3.12.4"
    assert commands[0][-2:] == ["-U", "keras==3.12.*"]
    commands.clear()
    environment.make()
    assert [command[0] for command in commands] == ["install", "install-tf_keras"]
    assert "keras>=3.15" in commands[0]
