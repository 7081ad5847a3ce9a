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
from collections.abc import Iterator
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
    ("collectives/shard_exchange.cc", "Scatter"),
    ("collectives/transfers.cc", "Send"),
    ("transport/routed.cc", "Send"),
    ("transport/mpi/mpi_transport.cc", "Send"),
)
ABOUT_DEVICES = re.compile(r"device|gpu|cuda")


# A larger class has a concern that is another class's.
LARGEST_CLASS = {"lines": 320, "methods": 25, "fields": 15}
LIMITED = ("tf_ops/runtime", "tf_ops/transport")
# Classes that are larger, with the reason.
EXCEPTIONS = {
    "SessionComponents": "the list of all components, and nothing else",
    "SessionStats": "one field for each counter that the engine reports, and no method",
}


@dataclass
class Class:
    """A class of C++: lines of its declaration and of its methods wherever they are, methods and fields declared."""

    name: str
    lines: int = 0
    methods: int = 0
    fields: int = 0

    def excess(self) -> list[str]:
        """What is over the limits: "27 methods"."""
        return [f"{getattr(self, what)} {what}" for what, limit in LARGEST_CLASS.items() if getattr(self, what) > limit]


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


def lines_of(paths: list[Path]) -> int:
    """Lines, blank ones and comments included."""
    return sum(path.read_text(encoding="utf-8").count("\n") for path in paths)


def source_lines() -> int:
    """Lines of code that ship: without blanks, comments and docstrings, so that contracts cost nothing."""
    python = [path for path in tracked("smddp_tf") if path.suffix == ".py"]
    of_python_files = sum(of_python.source_lines(path.read_text(encoding="utf-8")) for path in python)
    return of_python_files + sum(source_lines_of(path.read_text(encoding="utf-8")) for path in native("tf_ops"))


def source_lines_of(text: str) -> int:
    """The same of one C++ file."""
    code = re.sub(r"/\*.*?\*/", lambda match: "\n" * match[0].count("\n"), text, flags=re.DOTALL)
    return sum(bool(line.split("//")[0].strip()) for line in code.split("\n"))


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


def too_large() -> dict[str, list[str]]:
    """The classes that are over the limits, and by what."""
    return {one.name: one.excess() for one in classes(*LIMITED) if one.excess() and one.name not in EXCEPTIONS}


def check_stops() -> None:
    """Fails when a stop is not where the list says."""
    for file, function in STOPS:
        text = (ROOT / "tf_ops" / file).read_text(encoding="utf-8")
        if not re.search(rf"\b{function}\(", text):
            raise SystemExit(f"tools/structure.py: {file} has no {function}: the way of a gradient has changed.")


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument(
        "--classes", action="store_true", help="list the ten largest classes of tf_ops/runtime and transport"
    )
    arguments = parser.parse_args()
    check_stops()
    of_python.check_stops()
    all_classes = classes(*LIMITED)
    folders = Counter(str(path.parent.relative_to(ROOT)) for path in native("tf_ops"))
    folder, files = folders.most_common(1)[0]
    python = [path for path in tracked("smddp_tf") if path.suffix == ".py"]
    most_methods = max(all_classes, key=lambda one: one.methods)
    most_fields = max(all_classes, key=lambda one: one.fields)
    others = [path for path in python if path != ROOT / of_python.PATCHES]
    rows = (
        ("largest class in runtime and transport, lines", f"{all_classes[0].lines} ({all_classes[0].name})"),
        ("most methods", f"{most_methods.methods} ({most_methods.name})"),
        ("most fields", f"{most_fields.fields} ({most_fields.name})"),
        ("classes over the limits", ", ".join(too_large()) or "0"),
        ("most files in one folder of tf_ops", f"{files} ({folder})"),
        ("folders of runtime", str(sum(name.startswith("tf_ops/runtime/") for name in folders))),
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
        ("functions of smddp_tf without annotations", str(sum(len(of_python.without_annotations(p)) for p in python))),
        (
            "assignments to Keras's classes elsewhere",
            str(sum(len(of_python.assignments_to_keras(p.read_text(encoding="utf-8"))) for p in others)),
        ),
        (".py files at the top of smddp_tf", str(sum(path.parent == ROOT / "smddp_tf" for path in python))),
        ("source lines that ship, without comments", f"{source_lines()} (at most {MOST_SOURCE_LINES})"),
        ("lines of C++ and Python that ship", str(lines_of(native("tf_ops")) + lines_of(python))),
    )
    for name, value in rows:
        print(f"{name:48} {value}")
    if arguments.classes:
        print()
        for one in all_classes[:10]:
            print(f"{one.name:30} {one.lines:4} lines {one.methods:3} methods {one.fields:3} fields")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
