"""How the modules of smddp_tf import one another: no cycles, and nothing imports the launcher.

What counts is what is imported when a module is, not what a function imports when it is called.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "smddp_tf"
LAUNCHER = "smddp_tf.run"


# The launcher's folders by floor, the lowest first; what lies beside them is above all of them.
LAUNCHER_FLOORS = (("hosts", "link", "output"), ("rank",), ("launch",), ("sagemaker",), ("cli",))


def module_files() -> dict[str, Path]:
    """All modules by name. A site folder is no package: Python finds it in another way."""
    files = [file for file in PACKAGE.rglob("*.py") if "site" not in file.parts]
    names = [".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for file in files]
    return dict(zip(names, files))


def statements_at_import(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """What runs when the module is imported: neither bodies of functions nor what only type checkers see."""
    for node in nodes:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        yield node
        for_types = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        yield from statements_at_import(node.orelse if for_types else ast.iter_child_nodes(node))


def imported(source: str, modules: Iterable[str]) -> set[str]:
    """Which of `modules` the source imports; of a package and a module in it, the module."""
    known, found = set(modules), set()
    for node in statements_at_import(ast.parse(source).body):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            inside = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= inside & known if inside & known else {str(node.module)}
    return found & known


@pytest.fixture(scope="module")
def imports() -> dict[str, set[str]]:
    files = module_files()
    return {name: imported(file.read_text(encoding="utf-8"), files) for name, file in files.items()}


def test_import_time_is_told_from_call_time() -> None:
    source = """
import a
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    import b
else:
    import c
try:
    from p import inner, other
except ImportError:
    pass
class C:
    import d
    def f(self):
        import e
"""
    assert imported(source, "abcde") == {"a", "c", "d"}
    assert imported(source, ["p", "p.inner"]) == {"p.inner"}
    assert imported(source, ["p"]) == {"p"}


def test_no_cycle(imports: dict[str, set[str]]) -> None:
    assert imports["smddp_tf.basics"] >= {"smddp_tf.lifecycle.placement", "smddp_tf._native.loader"}
    try:
        TopologicalSorter({name: below - {name} for name, below in imports.items()}).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


def test_only_the_launcher_imports_the_launcher(imports: dict[str, set[str]]) -> None:
    """The package works under any launcher, and without one."""

    def belongs(name: str) -> bool:
        return name == LAUNCHER or name.startswith(LAUNCHER + ".")

    assert belongs("smddp_tf.run.cli")
    wrong = {name: [each for each in below if belongs(each)] for name, below in imports.items() if not belongs(name)}
    assert not {name: below for name, below in wrong.items() if below}


def parts_of_launcher(source: str) -> set[str]:
    """What of the launcher, by folder, the source imports, inside functions too, or names in a string."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names.add(node.value)
    return {name.split(".")[2] for name in names if name.startswith(LAUNCHER + ".")}


def test_late_imports_of_the_launcher_count() -> None:
    source = (
        "def f():\n    from smddp_tf.run import cli\n    start('smddp_tf.run.rank.task')\n    import smddp_tf.other"
    )
    assert parts_of_launcher(source) == {"cli", "rank"}


def test_the_launchers_folders_import_from_lower_floors_only() -> None:
    floor_of = {folder: floor for floor, folders in enumerate(LAUNCHER_FLOORS) for folder in folders}
    folders = {path.parent.name for path in (PACKAGE / "run").glob("*/__init__.py")}
    assert folders == set(floor_of)
    wrong = [
        f"{file.relative_to(PACKAGE)} imports {part}"
        for folder in sorted(folders)
        for file in sorted((PACKAGE / "run" / folder).glob("*.py"))
        for part in parts_of_launcher(file.read_text(encoding="utf-8")) - {folder}
        if floor_of.get(part, len(LAUNCHER_FLOORS)) >= floor_of[folder]
    ]
    assert not wrong
