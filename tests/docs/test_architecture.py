"""The pictures and tables of docs/architecture.md say what the sources say."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

import pytest

from tests.tools.include_rules import NATIVE, ROOT, RULES, RUNTIME, code_of, files_of, name_of
from tests.tools.python_floors import UPWARD, all_imports, lies_in, unit_of

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
Arrows = dict[str, set[str]]


def top_folder(name: str) -> str:
    return name.split("/")[0]


def part_of_session(name: str) -> str:
    """The folder of runtime/ that holds it, or ""."""
    return name.split("/")[1] if name.startswith("runtime/") else ""


def without_detours(arrows: Mapping[str, Iterable[str]]) -> Arrows:
    """Those arrows that no way over other arrows replaces."""

    def reached(start: str) -> set[str]:
        found: set[str] = set()
        ahead = list(arrows.get(start, ()))
        while ahead:
            here = ahead.pop()
            if here not in found:
                found.add(here)
                ahead += arrows.get(here, ())
        return found

    return {
        start: set(ends) - {far for end in ends for far in reached(end)} for start, ends in arrows.items() if set(ends)
    }


def included(folder: str, of: Callable[[str], str]) -> Arrows:
    """Which parts the files of each part below `folder` include; `of` says to which part a file belongs."""
    arrows: Arrows = {}
    for file in files_of(folder):
        names = re.findall(
            r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', code_of(file.read_text(encoding="utf-8")), re.MULTILINE
        )
        ends = {of(name) for name in names if (NATIVE / name).exists()}
        arrows.setdefault(of(name_of(file)), set()).update(ends)
    return {start: ends - {start, ""} for start, ends in arrows.items()}


def allowed() -> Arrows:
    arrows: Arrows = {}
    for name, patterns in RULES.items():
        arrows.setdefault(top_folder(name), set()).update(top_folder(pattern) for pattern in patterns)
    return {start: ends - {start} for start, ends in arrows.items()}


def targets_of_cmake() -> Arrows:
    """USES between the parts of the session."""
    text = re.sub(r"#.*", "", (NATIVE / "runtime/CMakeLists.txt").read_text(encoding="utf-8"))
    found = re.findall(r"smddp_runtime\((\w+)\s([^)]*)\)", text)
    return {name: set(re.findall(r"\bruntime_(\w+)", uses)) for name, uses in found}


def imported(package: str, shown: Iterable[str]) -> Arrows:
    """Which units of a Python package import which of `shown`, directly or over units that are not shown."""
    arrows: Arrows = {}
    for one in all_imports():
        if not any(one.module == who and lies_in(one.imported, what) for who, what in UPWARD):
            start, end = unit_of(one.module, package), unit_of(one.imported, package)
            arrows.setdefault(start, set()).update({end} - {start, ""})

    def ends(start: str) -> set[str]:
        direct = arrows.get(start, set())
        return (direct & set(shown)).union(*(ends(each) for each in direct - set(shown)))

    return {start: ends(start) for start in shown}


def drawn(number: int) -> Arrows:
    """The arrows of a picture."""
    picture = re.findall(r"```mermaid\n(.*?)```", PAGE, flags=re.DOTALL)[number]
    arrows: Arrows = {}
    for start, end in re.findall(r"(\w+) --> (\w+)", picture):
        arrows.setdefault(start, set()).add(end)
    return arrows


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def described(title: str) -> list[str]:
    """The folders in the first column of the section's tables."""
    return re.findall(r"^\| `([\w/]+)/` \|", section(title), flags=re.MULTILINE)


def test_detours_are_left_out() -> None:
    arrows = {"a": {"b", "c", "d"}, "b": {"c"}, "c": {"d"}, "d": set()}
    assert without_detours(arrows) == {"a": {"b"}, "b": {"c"}, "c": {"d"}}


@pytest.mark.parametrize("arrows", [included(".", top_folder), allowed()], ids=["includes", "rules"])
def test_the_picture_of_the_folders(arrows: Arrows) -> None:
    assert without_detours(arrows) == drawn(0)


@pytest.mark.parametrize(
    "arrows",
    [included("runtime", part_of_session), RUNTIME, targets_of_cmake()],
    ids=["includes", "rules", "cmake"],
)
def test_the_picture_of_the_session(arrows: Arrows) -> None:
    assert without_detours(arrows) == drawn(3)


@pytest.mark.parametrize(("number", "package", "besides"), [(1, "smddp_tf", ["basics"]), (2, "smddp_tf.keras", [])])
def test_the_pictures_of_python(number: int, package: str, besides: list[str]) -> None:
    folder = ROOT.joinpath(*package.split("."))
    shown = {file.parent.name for file in folder.glob("*/__init__.py")} | set(besides)
    assert without_detours(imported(package, shown)) == drawn(number)


def test_every_folder_is_described() -> None:
    assert sorted(described("Parts")) == sorted(path.name for path in NATIVE.iterdir() if path.is_dir())
    assert described("The session") == list(RUNTIME), "in the order of tf_ops/runtime/CMakeLists.txt"
    package = ROOT / "smddp_tf"
    folders = {file.parent.relative_to(package).as_posix() for file in package.rglob("__init__.py")} - {"."}
    assert sorted(described("Python")) == sorted(folders)


def test_the_first_functions_are_in_their_files() -> None:
    rows = re.findall(r"^\| .* \| `([\w./]+)`: `(\w+)` \|$", section("Where to look first"), flags=re.MULTILINE)
    table = [line for line in section("Where to look first").splitlines() if line.startswith("| ")]
    assert len(rows) == len(table) - 1, "every row but the heads names a file and a function of it"
    for file, function in rows:
        text = (ROOT / file).read_text(encoding="utf-8")
        assert re.search(rf"^ *def {function}\(|^\w.*\b{function}\(", text, re.MULTILINE), (file, function)
