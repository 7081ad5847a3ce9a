"""Prints how the code is divided: classes, folders, lines, and the way of one gradient through Python and the engine.

python tools/structure.py            the table
python tools/structure.py --classes  and the ten largest classes of tf_ops/runtime and tf_ops/transport
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent))
import python_structure as of_python

ROOT = Path(__file__).resolve().parent.parent

# What is added to the library takes the place of something: the count of 2026-11-25.
MOST_SOURCE_LINES = 36657

# A gradient of a traced step on the CPU, several nodes, from TensorFlow to MPI: file and function, in the order of the
# calls. Several calls in a row inside one file are one stop.
STOPS = (
    ("ops/collective_kernel.cc", "ComputeAsync"),
    ("runtime/session/process.cc", "SessionOf"),
    ("ops/kernels/reduce_gradient_op.cc", "Start"),
    ("ops/tensor_adapter.cc", "MakeTensorRef"),
    ("runtime/session/engine_session.cc", "ReducePlanned"),
    ("runtime/engine/engine.cc", "Submit"),
    ("runtime/engine/engine.cc", "Loop"),
    ("runtime/session/engine_session.cc", "ReduceNow"),
    ("runtime/plans/given_up_steps.cc", "BeforeArrival"),
    ("runtime/plans/planned_reductions.cc", "Reduce"),
    ("runtime/plans/bucket_matcher.cc", "Arrive"),
    ("runtime/plans/plan_steps.h", "Take"),
    ("runtime/plans/plan.cc", "Put"),
    ("runtime/plans/bucket_launcher.cc", "Launch"),
    ("compute/fused_view.cc", "FusedView"),
    ("collectives/hierarchical.cc", "HierarchicalAllreduce"),
    ("runtime/control/running_tasks.cc", "Step"),
    ("collectives/task.cc", "Step"),
    ("collectives/node/stages.cc", "Step"),
    ("compute/fused_view.cc", "Pack"),
    ("transport/shm/node_channel.cc", "Publish"),
    ("collectives/rail/direct_exchange.cc", "Begin"),
    ("collectives/slice_exchange.h", "Scatter"),
    ("collectives/transfers.cc", "Send"),
    ("transport/routed.cc", "Send"),
    ("transport/mpi/mpi_transport.cc", "Send"),
)
ABOUT_DEVICES = re.compile(r"device|gpu|cuda")


# At most: what is larger has a concern that belongs to another class, function or folder. A class's lines are all of
# them; a Python function's are without its docstring. `self` and `cls` are no arguments.
LIMITS = {
    "C++ class": {"lines": 320, "methods": 25, "fields": 15},
    "Python class": {"lines": 250, "methods": 25, "fields": 15},
    "function": {"lines": 60, "arguments": 8},
    "folder": {"files": 20},
}
LIMITED = ("tf_ops/runtime", "tf_ops/transport")  # of the C++ classes
_HOROVOD = "the signature is Horovod's"
_SMDDP = "the signature is SMDDP's"
# What is over a limit, with the reason; each holds for one measure.
EXCEPTIONS = {
    ("SessionComponents", "fields"): "the list of all components, and nothing else",
    ("tf_ops/core/env/env.cc:EnvVariables", "lines"): "the table of all environment variables",
    ("tf_ops/python/control_py.cc:RegisterPlan", "arguments"): "the binding of a function that Python calls by names",
    ("smddp_tf/monitor/files.py:RankFacts", "fields"): "one field for each fact in a rank's file, and no method",
    (
        "smddp_tf/keras/optimizer/legacy.py:_members_for",
        "lines",
    ): "the members of a class that is made when it is known",
    ("smddp_tf/collectives/ops.py:allreduce", "arguments"): _HOROVOD,
    ("smddp_tf/collectives/ops.py:grouped_allreduce", "arguments"): _HOROVOD,
    ("smddp_tf/collectives/scatter_ops.py:reducescatter", "arguments"): _HOROVOD,
    ("smddp_tf/compat/horovod/internals.py:_make_allreduce_grads_fn", "arguments"): _HOROVOD,
    ("smddp_tf/compat/horovod/keras/__init__.py:DistributedOptimizer", "arguments"): _HOROVOD,
    ("smddp_tf/compat/horovod/keras_internals.py:create_distributed_optimizer", "arguments"): _HOROVOD,
    ("smddp_tf/compat/tf1/optimizer.py:DistributedOptimizer", "arguments"): _HOROVOD,
    ("smddp_tf/gradients/tape.py:DistributedGradientTape.__init__", "arguments"): _HOROVOD,
    ("smddp_tf/gradients/tape.py:PartialDistributedGradientTape", "arguments"): _HOROVOD,
    ("smddp_tf/keras/optimizer/distributed.py:DistributedOptimizer", "arguments"): _HOROVOD,
    ("smddp_tf/keras/optimizer/distributed.py:PartialDistributedOptimizer", "arguments"): _HOROVOD,
    ("smddp_tf/run/launch/function.py:run", "arguments"): _HOROVOD,
    ("smddp_tf/sdp/training.py:DistributedOptimizer", "arguments"): _SMDDP,
}


class Part(NamedTuple):
    """Something that `LIMITS` limits: its kind there, its name ("file:name"), and its sizes by measure."""

    kind: str
    name: str
    sizes: dict[str, int]


@dataclass
class Class:
    """A class of C++: lines of its declaration and of its methods wherever they are, methods and fields declared."""

    name: str
    lines: int = 0
    methods: int = 0
    fields: int = 0


class Item(NamedTuple):
    """A declaration or definition of C++: its text with `{}` for what is in braces, and the places of that text."""

    text: str
    bodies: list[tuple[int, int]]
    start: int
    end: int


def tracked(*folders: str) -> list[Path]:
    """The files of these folders that git knows."""
    listed = subprocess.run(["git", "ls-files", *folders], cwd=ROOT, capture_output=True, text=True, check=True)
    return [path for line in listed.stdout.splitlines() if (path := ROOT / line).is_file()]


def python() -> list[Path]:
    """The Python files that ship."""
    return [path for path in tracked("smddp_tf") if path.suffix == ".py"]


def lines_of(paths: list[Path]) -> int:
    """Lines, blank ones and comments included."""
    return sum(path.read_text(encoding="utf-8").count("\n") for path in paths)


def source_lines() -> int:
    """Lines of code that ship: without blanks, comments and docstrings, so that contracts cost nothing."""
    of_python_files = sum(of_python.source_lines(path.read_text(encoding="utf-8")) for path in python())
    return of_python_files + sum(source_lines_of(path.read_text(encoding="utf-8")) for path in native("tf_ops"))


def source_lines_of(text: str) -> int:
    """The same of one C++ file."""
    code = re.sub(r"/\*.*?\*/", lambda match: "\n" * match[0].count("\n"), text, flags=re.DOTALL)
    return sum(bool(line.split("//")[0].strip()) for line in code.split("\n"))


def without_test_by_name(sources: list[Path]) -> list[Path]:
    """Those that have no `test_NAME` or `test_NAME_...`, .py or .cc, in the same folder of `tests`."""
    missing = []
    for path in sources:
        folder = ROOT / "tests" / path.relative_to(ROOT).parent.relative_to(path.relative_to(ROOT).parts[0])
        names = [file.stem for file in folder.glob("test_*") if file.suffix in (".py", ".cc")]
        wanted = f"test_{path.stem.lstrip('_')}"  # of `_backend.py` that is `test_backend.py`
        if not any(name == wanted or name.startswith(f"{wanted}_") for name in names):
            missing.append(path)
    return missing


def share_found_by_name(sources: list[Path]) -> str:
    """How many of them have a test of their name: share and numbers."""
    found = len(sources) - len(without_test_by_name(sources))
    return f"{100 * found / len(sources):.0f} % ({found} of {len(sources)})"


def modules_to_test() -> list[Path]:
    """The modules that ship and do something of their own: no packages, and none that only names what others have."""
    return [
        path
        for path in python()
        if path.stem[:2] != "__" and of_python.does_something(path.read_text(encoding="utf-8"))
    ]


def native(*folders: str) -> list[Path]:
    """C++ and CUDA sources below these folders."""
    return [path for path in tracked(*folders) if path.suffix in (".h", ".cc", ".cu", ".cuh", ".inc")]


def code_of(text: str) -> str:
    """The text with blanks for comments, literals and lines of the preprocessor; every place stays where it is."""
    skipped = r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|(?<!\w)\'(?:\\.|[^\'\\\n])+\'|^[ \t]*#(?:\\\n|[^\n])*'
    blank = re.compile(r"[^\n]")
    return re.sub(skipped, lambda match: blank.sub(" ", match[0]), text, flags=re.DOTALL | re.MULTILINE)


def items(code: str, start: int, end: int) -> Iterator[Item]:
    """What is declared between two places, one by one."""
    text, bodies, first, depth, opened = "", [], start, 0, start
    for place in range(start, end):
        character = code[place]
        if not text.strip():
            first = place
        if character == "{":
            opened = place + 1 if depth == 0 else opened
            depth += 1
        elif depth == 0:
            text += character
        if character == "}":
            depth -= 1
            if depth == 0:
                text += "{}"
                bodies.append((opened, place))
        # The end of a function, a namespace or `extern "C"`; braces of initializers are followed by something else.
        is_block = (
            character == "}" and not re.match(r"\s*[,;{)]", code[place + 1 :]) and not re.search(r"=[^()]*$", text)
        )
        whole = re.search(r"\)[^=]*\{\}$|^\s*(?:inline )?namespace\b|^\s*extern\b", text) if is_block else None
        if depth == 0 and (character == ";" or whole or re.search(r"\b(?:public|private|protected):$", text)):
            if text.strip(" ;\n") and not text.rstrip().endswith(("public:", "private:", "protected:")):
                yield Item(text.strip(), bodies, first, place)
            text, bodies = "", []


def without_brackets(text: str) -> str:
    """The text without what is in <>."""
    text = re.sub(r"operator\s*[^\s\w(]+", "operator_", text)
    while (shorter := re.sub(r"<[^<>]*>", "", text)) != text:
        text = shorter
    return text


def count_member(item: Item, one: Class) -> None:
    """Counts a member of the class: a method, or fields. Types, friends and constants are neither."""
    text = without_brackets(re.sub(r"\balignas\([^)]*\)|\[\[.*?\]\]", "", item.text))
    text = re.sub(r"^template\s*", "", text).rstrip("; ")
    if re.match(r"(using|typedef|friend|static constexpr|static_assert|enum)\b|[A-Z_]+\(", text) or "= delete" in text:
        return
    if re.match(r"(class|struct|union)\b", text):  # `struct Name {} name` is a field
        one.fields += bool(re.search(r"\{\}\s*\w", text)) or (" " in text and "{" not in text and text.count(" ") > 1)
    elif re.search(r"\w\s*\(", re.split(r"=|\{", text)[0]):
        one.methods += 1
    else:
        one.fields += 1 + len(re.findall(r",", re.sub(r"\([^()]*\)", "", text)))


def read_classes(code: str, start: int, end: int, outer: str, found: dict[str, Class]) -> None:
    """Adds the classes between two places, and the lines of the methods that are defined there, to `found`."""
    for item in items(code, start, end):
        lines = code.count("\n", item.start, item.end) + 1
        header = without_brackets(item.text)
        named = re.match(r"(?:template\s*)?(?:class|struct)\s+([\w:]+)[^({;]*\{\}", header)
        method = re.search(r"\b((?:\w+::)+)~?\w+\s*\(", header.split("{")[0])
        if re.match(r"(?:inline )?namespace\b|extern\b", header) and item.bodies:
            read_classes(code, *item.bodies[0], outer, found)
        elif named is not None and item.bodies:
            one = found.setdefault(outer + named[1], Class(outer + named[1]))
            one.lines += lines
            for member in items(code, *item.bodies[0]):
                count_member(member, one)
            read_classes(code, *item.bodies[0], one.name + "::", found)
        elif method is not None and not outer and item.bodies and (one_of := found.get(method[1][:-2])):
            one_of.lines += lines


def classes(*folders: str) -> list[Class]:
    """All classes of these folders, the largest first. Equal names in several sources count as one."""
    found: dict[str, Class] = {}
    for path in sorted(native(*folders), key=lambda path: path.suffix != ".h"):  # the declarations first
        code = code_of(path.read_text(encoding="utf-8"))
        read_classes(code, 0, len(code), "", found)
    return sorted(found.values(), key=lambda one: -one.lines)


def functions(code: str, start: int, end: int, outer: str = "") -> Iterator[Part]:
    """The functions that are defined between two places."""
    for item in items(code, start, end):
        header = re.sub(r"__attribute__\s*\(\(.*?\)\)", "", without_brackets(item.text))
        named = re.match(r"(?:template\s*)?(?:class|struct|union)\s+([\w:]+)[^({;]*\{\}", header)
        arguments = re.search(r"([\w:~]+)\s*\((.*)", re.split(r"[={]", header)[0], re.DOTALL)
        if item.bodies and (named or re.match(r"(?:inline )?namespace\b|extern\s*\{", header)):
            yield from functions(code, *item.bodies[0], f"{outer}{named[1]}::" if named else outer)
        elif arguments and item.bodies and re.search(r"\)[^=]*\{\}", item.text):
            lines = code.count("\n", item.start, item.end) + 1
            yield Part("function", outer + arguments[1], {"lines": lines, "arguments": count_arguments(arguments[2])})


def count_arguments(text: str) -> int:
    """The arguments in a text that begins behind their opening bracket."""
    count, depth = 1, 0
    for place, character in enumerate(text):
        depth += (character in "([") - (character in ")]")
        count += character == "," and depth == 0
        if depth < 0:
            return count if text[:place].strip() not in ("", "void") else 0
    return count


def parts() -> Iterator[Part]:
    """All that `LIMITS` limits."""
    for one in classes(*LIMITED):
        yield Part("C++ class", one.name, {"lines": one.lines, "methods": one.methods, "fields": one.fields})
    for path in native("tf_ops"):
        code = code_of(path.read_text(encoding="utf-8"))
        for part in functions(code, 0, len(code)):
            yield part._replace(name=f"{path.relative_to(ROOT)}:{part.name}")
    for path in python():
        for kind, name, sizes in of_python.parts_of(path.read_text(encoding="utf-8")):
            yield Part(kind, f"{path.relative_to(ROOT)}:{name}", sizes)
    yield from folders([*native("tf_ops"), *python()])


def folders(files: list[Path]) -> Iterator[Part]:
    """The folders of these files."""
    for folder, count in Counter(str(path.parent.relative_to(ROOT)) for path in files).items():
        yield Part("folder", folder, {"files": count})


def excess(found: Iterable[Part]) -> dict[tuple[str, str], str]:
    """What is over a limit, by name and measure: "27 methods (at most 25)"."""
    return {
        (part.name, measure): f"{part.sizes[measure]} {measure} (at most {limit})"
        for part in found
        for measure, limit in LIMITS[part.kind].items()
        if part.sizes[measure] > limit
    }


def check_stops() -> None:
    """Fails when a stop is not where the list says."""
    for file, function in STOPS:
        text = (ROOT / "tf_ops" / file).read_text(encoding="utf-8")
        if not re.search(rf"\b{function}\(", text):
            raise SystemExit(f"tools/structure.py: {file} has no {function}: the way of a gradient has changed.")


def largest_of(found: list[Part], kind: str, measure: str, limit: int) -> tuple[str, str]:
    """A row of the table: the largest part of a kind that is no exception."""
    those = [part for part in found if part.kind == kind and (part.name, measure) not in EXCEPTIONS]
    part = max(those, key=lambda one: one.sizes[measure])
    return f"{kind}, most {measure} (at most {limit})", f"{part.sizes[measure]} ({part.name})"


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument(
        "--classes", action="store_true", help="list the ten largest classes of tf_ops/runtime and transport"
    )
    parser.add_argument("--stops", action="store_true", help="list the functions on the way of a gradient, of a batch")
    arguments = parser.parse_args()
    check_stops()
    of_python.check_stops()
    all_classes = classes(*LIMITED)
    found = list(parts())
    over = [f"{name}: {text}" for (name, measure), text in excess(found).items() if (name, measure) not in EXCEPTIONS]
    largest = [(kind, measure, limit) for kind, limits in LIMITS.items() for measure, limit in limits.items()]
    files = python()
    others = [path for path in files if path != ROOT / of_python.PATCHES]
    rows = (
        *(largest_of(found, *one) for one in largest),
        ("over the limits", "; ".join(over) or "0"),
        ("exceptions from the limits", str(len(EXCEPTIONS))),
        ("folders of runtime", str(len(list(folders(native("tf_ops/runtime")))))),
        ("lines of runtime", str(lines_of(native("tf_ops/runtime")))),
        ("lines of the shipped binding", str(lines_of(native("tf_ops/python")))),
        ("C++ stops of a CPU gradient to MPI_Isend", str(len(STOPS))),
        ("of these, files about devices", str(sum(bool(ABOUT_DEVICES.search(file)) for file, _ in STOPS))),
        ("Python stops of a gradient, Keras to the op", str(len(of_python.STOPS))),
        ("of these, files", str(len(set(of_python.files_of(of_python.STOPS))))),
        ("of these, turns back", str(of_python.turns_back(of_python.STOPS))),
        ("Python stops of a batch, `shard` to `train_step`", str(len(of_python.STOPS_OF_BATCH))),
        ("of these, files", str(len(set(of_python.files_of(of_python.STOPS_OF_BATCH))))),
        ("of these, turns back", str(of_python.turns_back(of_python.STOPS_OF_BATCH))),
        ("files that write Keras's `_distributed_dataset`", str(len(of_python.writers_of(["_distributed_dataset"])))),
        ("variables by thread or context in keras/", str(len(of_python.kept_by_thread()))),
        ("functions of smddp_tf without annotations", str(sum(len(of_python.without_annotations(p)) for p in files))),
        (
            "assignments to Keras's classes elsewhere",
            str(sum(len(of_python.assignments_to_keras(p.read_text(encoding="utf-8"))) for p in others)),
        ),
        (".py files at the top of smddp_tf", str(sum(path.parent == ROOT / "smddp_tf" for path in files))),
        ("Python modules whose test is found by name", share_found_by_name(modules_to_test())),
        (
            "C++ units whose test is found by name",
            share_found_by_name([p for p in native("tf_ops") if p.suffix == ".cc"]),
        ),
        ("arguments in smddp_tf that are `Any`", of_python.share_of_any(files)),
        ("source lines that ship, without comments", f"{source_lines()} (at most {MOST_SOURCE_LINES})"),
        ("lines of C++ and Python that ship", str(lines_of(native("tf_ops")) + lines_of(files))),
    )
    for name, value in rows:
        print(f"{name:48} {value}")
    if arguments.stops:
        of_cpp = [f"{file}:{function}" for file, function in STOPS]
        ways = {"gradient, Python": of_python.STOPS, "gradient, C++": of_cpp, "batch": of_python.STOPS_OF_BATCH}
        for way, stops in ways.items():
            print("", f"The way of a {way}:", *stops, sep="\n")
    if arguments.classes:
        print()
        for one in all_classes[:10]:
            print(f"{one.name:30} {one.lines:4} lines {one.methods:3} methods {one.fields:3} fields")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
