"""How smddp_tf imports itself: floors of folders, no cycle of modules, and few imports inside of functions."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

import pytest

from tests.tools.python_floors import (
    FLOORS,
    LAZY,
    TABLES,
    UPWARD,
    Import,
    all_imports,
    imports_of,
    is_listed,
    lies_in,
    module_files,
    unit_of,
    upward,
)

LAUNCHER = "smddp_tf.run"
# Horovod has its command line in a module that programs import.
OF_LAUNCHER = ("smddp_tf.compat.horovod.runner_launch", "smddp_tf.ray.executor", "smddp_tf.spark")


@pytest.fixture(scope="module")
def imports() -> list[Import]:
    return all_imports()


def test_ways_of_importing_are_told_apart() -> None:
    source = """
'''c'''
import a
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    import b
else:
    import c
if not TYPE_CHECKING:
    import g
try:
    from p import inner, other
except ImportError:
    pass
class C:
    import d
    def f(self):
        "b"
        import e
        import_module("f")
"""
    known = ["a", "b", "c", "d", "e", "f", "g", "p", "p.inner"]
    found = {(one.imported, one.way) for one in imports_of("m", source, known)}
    top = {(name, "top") for name in ("a", "c", "d", "g", "p", "p.inner")}
    assert found == top | {("e", "late"), ("f", "string")}


@pytest.mark.parametrize("package", FLOORS)
def test_every_unit_has_a_floor(package: str) -> None:
    listed = [unit for units in FLOORS[package] for unit in units]
    units = {unit_of(name, package) for name in module_files()} - {""}
    assert sorted(listed) == sorted(units)


@pytest.mark.parametrize("package", FLOORS)
def test_imports_go_down(imports: list[Import], package: str) -> None:
    """Also those inside of functions, and by name."""
    wrong = upward(imports, package)
    assert not wrong, "\n".join(f"{one.module}:{one.line} imports {one.imported}" for one in wrong)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("smddp_tf.keras.saving.sharded_variables", "def f():\n    from smddp_tf.keras.optimizer import reducing\n"),
        ("smddp_tf.keras.roles.wrapping", "import smddp_tf.keras.fit.guard\n"),
        ("smddp_tf.keras.layers.configs", "from smddp_tf.keras import sharding\n"),
        ("smddp_tf.collectives.emit", "def f():\n    import_module('smddp_tf.gradients.reducer')\n"),
        ("smddp_tf.basics", "def f():\n    import smddp_tf.compat\n"),
        ("smddp_tf.data.epochs", "import smddp_tf\n"),
    ],
)
def test_an_import_upward_is_found(module: str, source: str) -> None:
    known = [*module_files(), "smddp_tf.keras.sharding"]
    found = [upward(imports_of(module, source, known), package) for package in FLOORS]
    assert sum(map(len, found)) == 1


def test_late_imports_are_listed(imports: list[Import]) -> None:
    late = [one for one in imports if one.way != "top"]
    wrong = [one for one in late if not is_listed(one)]
    assert not wrong, "\n".join(f"{one.module}:{one.line} imports {one.imported} late" for one in wrong)
    assert len(LAZY) < 10
    used = [any(lies_in(one.module, who) and lies_in(one.imported, what) for one in late) for who, what in LAZY]
    assert all(used), "an entry that no import needs"
    assert {one.module for one in late} >= set(TABLES)
    assert len(UPWARD) == 2


def test_no_cycle(imports: list[Import]) -> None:
    """Of modules, by what is imported when a module is."""
    below: dict[str, set[str]] = {name: set() for name in module_files()}
    for one in imports:
        if one.way == "top" and one.module != one.imported:
            below[one.module].add(one.imported)
    assert below["smddp_tf.basics"] >= {"smddp_tf.lifecycle.placement", "smddp_tf._native.loader"}
    try:
        TopologicalSorter(below).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


def test_only_the_launcher_imports_the_launcher(imports: list[Import]) -> None:
    """The package works under any launcher, and without one."""
    wrong = [
        one
        for one in imports
        if lies_in(one.imported, LAUNCHER) and not lies_in(one.module, LAUNCHER) and one.module not in OF_LAUNCHER
    ]
    assert not [one for one in wrong if one.way != "string"]
    assert {one.module for one in wrong} <= {"smddp_tf.aliases.table"}
