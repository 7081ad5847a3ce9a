"""What tools/structure.py prints about Python: the way of a gradient, annotations, assignments to Keras's classes."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PATCHES = "smddp_tf/keras/patches.py"

# A gradient of a traced `fit` with a wrapped optimizer, one update per step, from Keras's `apply` to the native op and
# back to Keras: the functions that are handed the gradients, in the order of the calls. Several in a row in one file
# are one stop. A stop in a file that was left before is a turn back.
STOPS = (
    "keras/optimizer/reducing.py:apply",
    "keras/optimizer/pipeline.py:apply_reduced",
    "gradients/reduced_once.py:by_tape",
    "keras/optimizer/pipeline.py:_allreduce",
    "keras/optimizer/same_batches.py:note",
    "gradients/reducer.py:__call__",
    "compression.py:compress",
    "collectives/emit.py:reduce_gradient",
    "collectives/graph.py:run_independently",
    "keras/optimizer/reducing.py:_clip_gradients",
)
# A batch of `fit` on ranks with different numbers of batches, from `hvd.data.shard` to the model's `train_step`: the
# functions that decide about the data or change them, in the order of the calls, counted as above.
STOPS_OF_BATCH = (
    "data/sharding.py:shard",
    "data/tf_datasets.py:part_of",
    "keras/fit/patch.py:fit",
    "keras/fit/plan.py:plan_of_fit",
    "keras/fit/epoch_data.py:prepared",
    "keras/data_parallel/global_batches.py:make_iterator",
    "keras/fit/epoch_data.py:prepare",
    "keras/fit/guard.py:agree",
    "keras/fit/uneven.py:plan_for",
    "keras/roles/step_hooks.py:installed_in",
    "keras/fit/epoch_data.py:prepare",
    "keras/fit/guard.py:begin_epoch",
    "keras/fit/uneven.py:begin_epoch",
    "keras/fit/epoch_data.py:set_length",
    "keras/fit/guard.py:run",
    "keras/fit/uneven.py:__call__",
    "keras/roles/input_waits.py:_next_internal",
    "keras/roles/step_hooks.py:_uneven_step",
)
_SETTERS = ("setattr", "delattr", "__setattr__", "__delattr__")
_NAMES_OF_CLASSES = ("owner", "trainer")
Function = (ast.FunctionDef, ast.AsyncFunctionDef)


def check_stops() -> None:
    """Fails when a stop is not where the list says."""
    for stop in (*STOPS, *STOPS_OF_BATCH):
        file, function = stop.split(":")
        nodes = ast.walk(ast.parse((ROOT / "smddp_tf" / file).read_text(encoding="utf-8")))
        if not any(isinstance(node, Function) and node.name == function for node in nodes):
            raise SystemExit(f"tools/structure.py: {file} has no {function}: the way through Python has changed.")


def files_of_stops(stops: Sequence[str] = STOPS) -> set[str]:
    """The files on the way."""
    return {stop.split(":")[0] for stop in stops}


def turns_back(stops: Sequence[str] = STOPS) -> int:
    """Stops in a file that was left before."""
    files = [stop.split(":")[0] for stop in stops]
    return sum(file in files[:index] and files[index - 1] != file for index, file in enumerate(files))


def without_annotations(path: Path) -> list[str]:
    """The functions of a file of which an argument or the result has no annotation; `self` and `cls` need none."""
    functions = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, Function)]
    return [one.name for one in functions if not _is_annotated(one)]


def _is_annotated(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    taken = function.args
    positional = [*taken.posonlyargs, *taken.args]
    bound = bool(positional) and positional[0].arg in ("self", "cls")
    others = [*positional[bound:], *taken.kwonlyargs, *(one for one in (taken.vararg, taken.kwarg) if one is not None)]
    return function.returns is not None and all(one.annotation for one in others)


def assignments_to_keras(source: str) -> list[int]:
    """The lines that assign to an attribute of a class of Keras, delete one, or change a function's code.

    A class of Keras is what is written as one (`keras.Layer`), a name that was given one, what is found through `type`
    or `__mro__`, and an argument that is called as one (`optimizer_class`, `owner`).
    """
    tree = ast.parse(source)
    return sorted({line for scope in ast.walk(tree) if _is_scope(scope) for line in _assignments_in(scope, tree)})


def writers_of(attributes: Sequence[str], folder: str = "smddp_tf") -> list[str]:
    """The files of a folder that assign to an attribute of one of these names, of whatever."""
    paths = sorted((ROOT / folder).rglob("*.py"))
    return [str(path.relative_to(ROOT)) for path in paths if _writes(ast.parse(path.read_text("utf-8")), attributes)]


def _writes(module: ast.Module, attributes: Sequence[str]) -> bool:
    for node in ast.walk(module):
        if any(isinstance(target, ast.Attribute) and target.attr in attributes for target in _targets(node)):
            return True
        is_setter = isinstance(node, ast.Call) and _name(node.func) in _SETTERS
        if is_setter and any(isinstance(one, ast.Constant) and one.value in attributes for one in node.args):
            return True
    return False


def kept_by_thread(folder: str = "smddp_tf/keras") -> list[str]:
    """The files of a folder that keep something by thread or context, once for each such variable."""
    paths = sorted((ROOT / folder).rglob("*.py"))
    calls = [(path, node) for path in paths for node in ast.walk(ast.parse(path.read_text("utf-8")))]
    return [
        str(path.relative_to(ROOT))
        for path, node in calls
        if isinstance(node, ast.Call) and _name(node.func) in ("local", "ContextVar")
    ]


def _is_scope(node: ast.AST) -> bool:
    return isinstance(node, (ast.Module, *Function))


def _assignments_in(scope: ast.AST, module: ast.Module) -> Iterator[int]:
    classes = _names_of_keras(module.body) | _names_of_keras(list(ast.walk(scope)))
    if isinstance(scope, Function):
        classes |= {one.arg for one in (*scope.args.args, *scope.args.kwonlyargs) if _is_called_class(one)}
    for node in ast.walk(scope):
        for target in _targets(node):
            if isinstance(target, ast.Attribute) and (target.attr == "__code__" or _is_class(target.value, classes)):
                yield target.lineno
        is_setter = isinstance(node, ast.Call) and len(node.args) > 1 and _name(node.func) in _SETTERS
        if is_setter and _is_class(node.args[0], classes):
            yield node.lineno


def _targets(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, (ast.Assign, ast.Delete)):
        return [one for each in node.targets for one in (each.elts if isinstance(each, ast.Tuple) else [each])]
    return [node.target] if isinstance(node, (ast.AugAssign, ast.AnnAssign)) else []


def _names_of_keras(nodes: list[ast.stmt] | list[ast.AST]) -> set[str]:
    """Names that stand for classes of Keras."""
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("keras", "tf_keras"):
            names |= {one.asname or one.name for one in node.names if one.name[0].isupper()}
        value = getattr(node, "value", None) if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
        value = node.iter if isinstance(node, (ast.For, ast.comprehension)) else value
        if value is not None and (_is_class(value, names) or "__mro__" in ast.dump(value)):
            targets = [node.target] if isinstance(node, (ast.For, ast.comprehension)) else _targets(node)
            names |= {one.id for one in targets if isinstance(one, ast.Name)}
    return names


def _is_class(node: ast.expr, names: set[str]) -> bool:
    if isinstance(node, ast.Name):
        return node.id in names
    if isinstance(node, ast.Call):
        return _name(node.func) == "type" or (_name(node.func) == "getattr" and "keras" in ast.dump(node.args[0]))
    if not isinstance(node, ast.Attribute):
        return False
    return node.attr[0].isupper() and "keras" in ast.dump(node.value)


def _name(function: ast.expr) -> str:
    return function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")


def _is_called_class(argument: ast.arg) -> bool:
    return argument.arg.endswith("_class") or argument.arg in _NAMES_OF_CLASSES
