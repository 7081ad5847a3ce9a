"""smddp_tf._core holds what the package uses, and its stub says the same; test access is in a module of its own."""

import ast
import re
from pathlib import Path

from smddp_tf._native import loader
from tests.native_module import core

PACKAGE = Path(__file__).resolve().parents[2] / "smddp_tf"


def shipped() -> set[str]:
    return {name for name in vars(loader.core()) if not name.startswith("__")}


def test_the_stub_lists_the_module() -> None:
    stub = ast.parse((PACKAGE / "_core.pyi").read_text(encoding="utf-8"))
    names = {node.name for node in stub.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    constants = {node.target.id for node in stub.body if isinstance(node, ast.AnnAssign)}
    assert names | constants == shipped()


def test_the_package_uses_all_of_it() -> None:
    texts = [path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")]
    used = {name for text in texts for name in re.findall(r"\b(?:core|core\(\)|module)\.(\w+)", text)}
    assert shipped() - used == {"SubmittedRequest"}  # which `submit` returns


def test_test_access_comes_beside_it() -> None:
    both = set(vars(core()))
    assert shipped() < both
    assert {"Ranks", "cluster_allreduce", "compute_cast", "trace_start"} <= both - shipped()
