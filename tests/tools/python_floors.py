"""Which folder of smddp_tf may import which: one only of a lower floor. And who may import inside of a function.

A unit is a folder, or a module that lies beside the folders; `__init__` is the package's own file.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "smddp_tf"

# From the ground up; the units of one floor do not import one another.
FLOORS = {
    "smddp_tf": (
        ("_warn", "exceptions", "urls"),
        ("_native", "link"),
        ("rendezvous",),
        ("compression", "lifecycle", "process_sets"),
        ("monitor",),
        ("basics", "timeline"),
        ("collectives",),
        ("data", "elastic", "gradients", "torch_backend"),
        ("insight", "torch"),
        ("keras",),
        ("aliases",),
        ("as_horovod", "as_smdistributed", "run"),
        ("compat", "ray", "spark"),
        ("__init__", "mpi_ops"),
        ("demo", "sdp"),
    ),
    "smddp_tf.keras": (
        ("_backend", "patch_table", "values"),
        ("patches",),
        ("rank_seeds", "roles"),
        ("adapted_layers", "metric_merge", "saving", "schedules", "sync_batch_normalization"),
        ("layers", "sharding"),
        ("optimizer",),
        ("elastic",),
        ("callbacks",),
        ("data_parallel", "loading"),
        ("fit",),
        ("__init__", "distribution"),
    ),
    "smddp_tf.run": (
        ("hosts", "output"),
        ("rank",),
        ("launch",),
        ("cli",),
        ("__init__", "__main__", "horovodrun"),
    ),
}

# Imports inside of functions, and by names in strings: who, what (or what lies in it), and why not at the top.
LAZY = {
    ("smddp_tf.aliases.after_keras", "smddp_tf.keras.distribution"): "follows the script's own import of Keras",
    ("smddp_tf.compat", "smddp_tf"): "imports Keras, which a program that does without is not to import",
    ("smddp_tf.data.sharding", "smddp_tf.data"): "imports TensorFlow or Keras, for datasets that are theirs",
    ("smddp_tf.elastic.state", "smddp_tf"): "imports cloudpickle: the package needs the standard library only",
    ("smddp_tf.insight.report", "smddp_tf.insight.pictures"): "imports matplotlib, which is optional",
    (
        "smddp_tf.keras.data_parallel.global_batches",
        "smddp_tf.data.py_datasets",
    ): "imports Keras 3, also beside Keras 2",
    ("smddp_tf.monitor.recording", "smddp_tf.monitor.samples"): "imports psutil, where something is recorded",
    ("smddp_tf.run", "smddp_tf"): "a command line imports what its arguments ask for",
}
# Their tables name, in strings, the modules of names that are imported when they are first used.
TABLES = ("smddp_tf", "smddp_tf.aliases.table", "smddp_tf.elastic", "smddp_tf.sdp")
# Names of other libraries, for their scripts: what they name lies where it belongs here.
UPWARD = {
    ("smddp_tf.aliases.table", "smddp_tf"): "imported when a script imports the module of Horovod or SMDDP",
    ("smddp_tf.elastic", "smddp_tf.keras.elastic"): "the states and callbacks that hvd.elastic has for Keras",
}


class Import(NamedTuple):
    """One import of a module of ours. `way` is "top", "late" (inside of a function) or "string"."""

    module: str
    imported: str
    way: str
    line: int


def module_files() -> dict[str, Path]:
    """All modules by name. A site folder is no package (Python finds it in another way), and the build writes one."""
    files = [file for file in PACKAGE.rglob("*.py") if "site" not in file.parts and file.stem != "_build_info"]
    names = [".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for file in files]
    return dict(zip(names, files))


def _nodes(nodes: Iterable[ast.AST], late: bool = False) -> Iterator[tuple[ast.AST, bool]]:
    """All that runs, and whether when a function is called; not what only type checkers see, nor docstrings."""
    for node in nodes:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        yield node, late
        for_types = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        inside = late or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        if not (for_types and "not TYPE_CHECKING" not in ast.unparse(node.test)):
            yield from _nodes(ast.iter_child_nodes(node), inside)
        else:
            yield from _nodes(node.orelse, inside)


def imports_of(module: str, source: str, known: Iterable[str]) -> list[Import]:
    """What a module imports of the `known` ones; of a package and a module in it, the module."""
    known, found = set(known), []
    for node, late in _nodes(ast.parse(source).body):
        way = "late" if late else "top"
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            inside = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in known else str(node.module) for name in inside]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            # A name of one's own package is for people to read.
            names, way = [] if lies_in(module, node.value) else [node.value], "string"
        else:
            continue
        found += [Import(module, name, way, getattr(node, "lineno", 0)) for name in names if name in known]
    return found


def all_imports() -> list[Import]:
    files = module_files()
    return [one for name, file in files.items() for one in imports_of(name, file.read_text(encoding="utf-8"), files)]


def unit_of(module: str, package: str) -> str:
    """The unit of `package` that a module belongs to; "" outside of the package."""
    if module == package:
        return "__init__"
    return module[len(package) + 1 :].split(".")[0] if module.startswith(f"{package}.") else ""


def lies_in(module: str, package: str) -> bool:
    return f"{module}.".startswith(f"{package}.")


def upward(imports: Iterable[Import], package: str) -> list[Import]:
    """Those that do not go to a lower floor of `package`."""
    floors = {unit: number for number, units in enumerate(FLOORS[package]) for unit in units}
    wrong = []
    for one in imports:
        start, end = unit_of(one.module, package), unit_of(one.imported, package)
        allowed = any(one.module == who and lies_in(one.imported, what) for who, what in UPWARD)
        if start and end and start != end and floors[start] <= floors[end] and not allowed:
            wrong.append(one)
    return wrong


def is_listed(one: Import) -> bool:
    """Whether a late import is one of `LAZY` or in one of the tables."""
    by_rule = any(lies_in(one.module, who) and lies_in(one.imported, what) for who, what in LAZY)
    return by_rule or (one.way == "string" and one.module in TABLES)
