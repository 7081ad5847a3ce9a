"""What tools/structure.py prints about Python: the way of a gradient, annotations, assignments to Keras's classes."""

from __future__ import annotations

import ast
import inspect
import io
import itertools
import sys
import tokenize
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parent.parent
PATCHES = "smddp_tf/keras/patches.py"
_NO_CODE = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)

# A gradient of a traced step with a wrapped optimizer, two ranks, one update per step, from `apply` of Keras to the op
# and back to Keras: every function of smddp_tf that is entered on the way, in the order of the calls, but for those
# that read one fact (`FACTS`). Several in a row in one file are one stop. A stop in a file that was left before is a
# turn back. `tests/tools/test_python_structure.py` traces a step and compares.
STOPS = (
    "keras/optimizer/reducing.py:apply",
    "keras/roles/wrapping.py:reducer_of, reducer_on",
    "keras/optimizer/optimizer_reducer.py:update_of, context_of, sharded, _when_reduced, variables_of, of",
    "gradients/local_sources.py:kept, stays_local, indices",
    "collectives/layouts.py:identity, layout_of",
    "keras/optimizer/optimizer_reducer.py:over_ranks, _range_of_float16, _keeps_repeated_rows, reduced_by_tape",
    "gradients/reduced_once.py:by_tape, _noted_eagerly",
    "keras/optimizer/pipeline.py:apply_reduced, _refuse_norms, reduced, reduce_gradients",
    "keras/optimizer/same_batches.py:is_watching, note, _sample_bits",
    "gradients/reducer.py:__call__",
    "process_sets.py:id_of, checked, is_process_set_included, scope",
    "collectives/graph.py:is_alone, compiling, unique_name, is_for_session",
    "gradients/reducer.py:_inputs, _input, _name_of, _notes_on_the_rest, _reduced, _reduce_dense, _reduce_tensors, "
    "_reduce_in_graph",
    "collectives/emit.py:is_plannable, reduce_by_plan, register_plan, reduce_gradient, _planned, _addressed, "
    "_attributes_of, _float64_bits",
    "collectives/graph.py:run_independently",
    "keras/optimizer/optimizer_reducer.py:apply, applying",
    "keras/optimizer/reducing.py:_clip_gradients, clip, _backend_update_step",
)
# A batch of `fit` on ranks with different numbers of batches, from `hvd.data.shard` to the model's `train_step`: the
# functions that decide about the data or change them, in the order of the calls, counted as above. Where a
# `Throughput` measures, keras/roles/input_waits.py notes besides when each batch comes.
STOPS_OF_BATCH = (
    "data/sharding.py:shard",
    "data/tf_datasets.py:part_of",
    "keras/fit/patch.py:fit",
    "keras/fit/plan.py:plan_of_fit, init_iterator",
    "keras/data_parallel/global_batches.py:make_iterator",
    "keras/fit/epoch_data.py:prepare",
    "keras/fit/guard.py:agree",
    "keras/fit/uneven.py:plan_for",
    "keras/roles/step_hooks.py:installed_in",
    "keras/fit/epoch_data.py:prepare, begin_epoch, set_length, __call__",
    "keras/roles/step_hooks.py:_uneven_step",
)
# Functions, and files of functions, that read one fact and hand it back: who or how many the ranks are, a thread's
# label, a library that is loaded; and what stands around our functions (defaults, devices).
FACTS = frozenset(
    {
        "collectives/graph.py:call",
        "collectives/graph.py:device_scope",
        "_native/loader.py",
        "_native/tensorflow_import.py",
        "_native/threads.py",
        "basics.py",
        "compat/shims.py",
        "keras/patches.py:call",
        "process_sets.py:current",
        "process_sets.py:current_rank",
        "process_sets.py:current_size",
        "process_sets.py:ranks_of",
        "process_sets.py:renew_defaults",
    }
)
_FIRST = 8  # the largest `f_lasti` of a generator's frame that has only been made (bytes)
_SETTERS = ("setattr", "delattr", "__setattr__", "__delattr__")
_NAMES_OF_CLASSES = ("owner", "trainer")
Function = (ast.FunctionDef, ast.AsyncFunctionDef)


def stops_of(step: Callable[[], object]) -> tuple[str, ...]:
    """Runs `step` and returns its stops, each as "file:function, function"."""
    entered: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        file, name = frame.f_code.co_filename, frame.f_code.co_name
        # A generator is entered once; when it goes on, its frame has run an instruction before.
        begins = event == "call" and (not frame.f_code.co_flags & inspect.CO_GENERATOR or frame.f_lasti <= _FIRST)
        if begins and "/smddp_tf/" in file and not name.startswith("<"):
            file = file.rpartition("/smddp_tf/")[2]
            if not {file, f"{file}:{name}"} & FACTS:
                entered.append((file, name))

    sys.setprofile(note)
    try:
        step()
    finally:
        sys.setprofile(None)
    runs = itertools.groupby(entered, key=lambda one: one[0])
    return tuple(f"{file}:{', '.join(dict.fromkeys(name for _, name in run))}" for file, run in runs)


def check_stops() -> None:
    """Fails when a stop is not where the list says."""
    for stop in (*STOPS, *STOPS_OF_BATCH):
        file, functions = stop.split(":")
        nodes = ast.walk(ast.parse((ROOT / "smddp_tf" / file).read_text(encoding="utf-8")))
        there = {node.name for node in nodes if isinstance(node, Function)}
        for function in functions.split(", "):
            if function not in there:
                raise SystemExit(f"tools/structure.py: {file} has no {function}: the way has changed.")


def files_of(stops: Sequence[str]) -> list[str]:
    """The file of each stop."""
    return [stop.split(":")[0] for stop in stops]


def turns_back(stops: Sequence[str]) -> int:
    """Stops in a file that was left before."""
    return len(stops) - len(set(files_of(stops)))


def share_of_any(paths: Iterable[Path]) -> str:
    """Arguments of functions that are annotated as `Any` and nothing else: share and numbers."""
    annotations = [
        argument.annotation
        for path in paths
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
        if argument.arg not in ("self", "cls")
    ]
    found = sum(isinstance(each, ast.Name) and each.id == "Any" for each in annotations)
    return f"{100 * found / len(annotations):.0f} % ({found} of {len(annotations)})"


def without_annotations(path: Path) -> list[str]:
    """The functions of a file of which an argument or the result has no annotation; `self` and `cls` need none."""
    functions = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, Function)]
    return [one.name for one in functions if not _is_annotated(one)]


def _is_annotated(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return function.returns is not None and all(one.annotation for one in _arguments(function))


def _arguments(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.arg]:
    """The arguments without `self` and `cls`; `*args` and `**kwargs` are one each."""
    taken = function.args
    positional = [*taken.posonlyargs, *taken.args]
    bound = bool(positional) and positional[0].arg in ("self", "cls")
    return [*positional[bound:], *taken.kwonlyargs, *(one for one in (taken.vararg, taken.kwarg) if one is not None)]


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
    """The files of a folder that keep something by thread or context, once for each such variable or class."""
    paths = sorted((ROOT / folder).rglob("*.py"))
    nodes = [(path, node) for path in paths for node in ast.walk(ast.parse(path.read_text("utf-8")))]
    return [str(path.relative_to(ROOT)) for path, node in nodes if _is_by_thread(node)]


def _is_by_thread(node: ast.AST) -> bool:
    made = [node.func] if isinstance(node, ast.Call) else node.bases if isinstance(node, ast.ClassDef) else []
    return any(_name(one) in ("local", "ContextVar") for one in made)


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


def source_lines(text: str) -> int:
    """Lines of one file with code: without blanks, comments and docstrings."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        has_body = isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        if has_body and ast.get_docstring(node, clean=False) is not None:
            lines -= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return len(lines)


def parts_of(source: str) -> Iterator[tuple[str, str, dict[str, int]]]:
    """The classes and functions of a file, those inside of others too: kind, qualified name, sizes by measure."""
    yield from _parts_in(ast.parse(source), "")


def _parts_in(outer: ast.AST, prefix: str) -> Iterator[tuple[str, str, dict[str, int]]]:
    for node in ast.iter_child_nodes(outer):
        if isinstance(node, ast.ClassDef):
            methods = [one for one in node.body if isinstance(one, Function)]
            sizes = {"lines": _lines(node), "methods": len(methods), "fields": len(_fields(node, methods))}
            yield "Python class", prefix + node.name, sizes
        elif isinstance(node, Function):
            lines = _lines(node) - (_lines(node.body[0]) if ast.get_docstring(node, clean=False) is not None else 0)
            yield "function", prefix + node.name, {"lines": lines, "arguments": len(_arguments(node))}
        named = isinstance(node, (ast.ClassDef, *Function))
        yield from _parts_in(node, f"{prefix}{node.name}." if named else prefix)


def _lines(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _fields(node: ast.ClassDef, methods: Sequence[ast.AST]) -> set[str]:
    """The names with a type in the class's body, and those that its methods assign to `self`."""
    declared = {
        one.target.id for one in node.body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
    }
    attributes = [one for method in methods for one in ast.walk(method) if isinstance(one, ast.Attribute)]
    assigned = [one for one in attributes if isinstance(one.ctx, ast.Store) and getattr(one.value, "id", "") == "self"]
    return declared | {one.attr for one in assigned}


def does_something(source: str) -> bool:
    """Whether a module has a function, a class with more than a docstring, or calls something when it is imported.

    One without only names what others have: types, errors, modules under another name.
    """
    return any(map(_does_something, ast.parse(source).body))


def _does_something(node: ast.stmt) -> bool:
    if isinstance(node, ast.ClassDef):
        return any(not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant)) for each in node.body)
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return True
    return any(isinstance(each, ast.Call) for each in ast.walk(node))
