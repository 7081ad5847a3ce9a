"""Prints how the code is divided: classes, folders, lines, and the way of one gradient through Python and the engine.

python tools/structure.py            the table
python tools/structure.py --classes  and the ten largest classes of tf_ops/runtime
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

sys.path.insert(0, str(Path(__file__).resolve().parent))
import python_structure as of_python

ROOT = Path(__file__).resolve().parent.parent

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
    ("runtime/planned/given_up_steps.cc", "BeforeArrival"),
    ("runtime/planned/planned_reductions.cc", "Reduce"),
    ("runtime/planned/bucket_matcher.cc", "Arrive"),
    ("runtime/plans/plan_steps.cc", "Take"),
    ("runtime/plans/plan_layout.cc", "Put"),
    ("runtime/planned/bucket_launcher.cc", "Launch"),
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


@dataclass
class Class:
    """A class of C++: lines of its declaration and of its methods wherever they are, methods and fields declared."""

    name: str
    lines: int = 0
    methods: int = 0
    fields: int = 0


def tracked(*folders: str) -> list[Path]:
    """The files of these folders that git knows."""
    listed = subprocess.run(["git", "ls-files", *folders], cwd=ROOT, capture_output=True, text=True, check=True)
    return [path for line in listed.stdout.splitlines() if (path := ROOT / line).is_file()]


def lines_of(paths: list[Path]) -> int:
    """Lines, blank ones and comments included."""
    return sum(path.read_text(encoding="utf-8").count("\n") for path in paths)


def native(folder: str) -> list[Path]:
    """C++ and CUDA sources below a folder."""
    return [path for path in tracked(folder) if path.suffix in (".h", ".cc", ".cu", ".cuh", ".inc")]


def declarations(body: str) -> Iterator[str]:
    """What is declared in a class body, one by one, without comments, nested braces and access labels."""
    body = re.sub(r"//[^\n]*", "", body)
    depth, text = 0, ""
    for character in body:
        if character == "{":
            depth += 1
        if depth == 0:
            text += character
        if character == "}":
            depth -= 1
            if depth == 0:
                text += "{}"
        if depth == 0 and (character == ";" or (character == "}" and re.search(r"\)[^;=]*\{\}$", text))):
            yield re.sub(r"\b(public|private|protected):", "", text).strip()
            text = ""


def classes(folder: str) -> list[Class]:
    """All classes of a folder with methods, the largest first."""
    found: dict[str, Class] = {}
    paths = native(folder)
    for path in paths:
        text = path.read_text(encoding="utf-8")
        for match in re.finditer(r"^(?:class|struct) (\w+)[^;{\n]*\{\n(.*?)^\};", text, re.MULTILINE | re.DOTALL):
            one = found.setdefault(match[1], Class(match[1]))
            one.lines += match[0].count("\n") + 1
            for each in declarations(match[2]):
                if re.match(r"(using|friend|struct|class|enum|static constexpr|typedef|template)\b", each):
                    continue
                if re.search(r"\w\s*\(", each.split("=")[0].split("{")[0]) and "std::function<" not in each:
                    one.methods += 1
                else:
                    one.fields += 1
    for path in paths:
        text = path.read_text(encoding="utf-8")
        for match in re.finditer(r"^[^\s/#}][^\n;]*?\b(\w+)::~?\w+\((?:.|\n)*?^\}", text, re.MULTILINE):
            if match[1] in found:
                found[match[1]].lines += match[0].count("\n") + 1
    return sorted((one for one in found.values() if one.methods), key=lambda one: -one.lines)


def check_stops() -> None:
    """Fails when a stop is not where the list says."""
    for file, function in STOPS:
        text = (ROOT / "tf_ops" / file).read_text(encoding="utf-8")
        if not re.search(rf"\b{function}\(", text):
            raise SystemExit(f"tools/structure.py: {file} has no {function}: the way of a gradient has changed.")


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--classes", action="store_true", help="list the ten largest classes of tf_ops/runtime")
    arguments = parser.parse_args()
    check_stops()
    of_python.check_stops()
    all_classes = classes("tf_ops/runtime")
    folders = Counter(str(path.parent.relative_to(ROOT)) for path in native("tf_ops"))
    folder, files = folders.most_common(1)[0]
    python = [path for path in tracked("smddp_tf") if path.suffix == ".py"]
    most_methods = max(all_classes, key=lambda one: one.methods)
    most_fields = max(all_classes, key=lambda one: one.fields)
    others = [path for path in python if path != ROOT / of_python.PATCHES]
    rows = (
        ("largest class in runtime, lines", f"{all_classes[0].lines} ({all_classes[0].name})"),
        ("most methods", f"{most_methods.methods} ({most_methods.name})"),
        ("most fields", f"{most_fields.fields} ({most_fields.name})"),
        ("most files in one folder of tf_ops", f"{files} ({folder})"),
        ("folders of runtime", str(sum(name.startswith("tf_ops/runtime/") for name in folders))),
        ("lines of runtime", str(lines_of(native("tf_ops/runtime")))),
        ("lines of the shipped binding", str(lines_of(native("tf_ops/python")))),
        ("C++ stops of a CPU gradient to MPI_Isend", str(len(STOPS))),
        ("of these, files about devices", str(sum(bool(ABOUT_DEVICES.search(file)) for file, _ in STOPS))),
        ("Python stops of a gradient, Keras to the op", str(len(of_python.STOPS))),
        ("of these, files", str(len(of_python.files_of_stops()))),
        ("of these, turns back", str(of_python.turns_back())),
        ("Python stops of a batch, `shard` to `train_step`", str(len(of_python.STOPS_OF_BATCH))),
        ("of these, files", str(len(of_python.files_of_stops(of_python.STOPS_OF_BATCH)))),
        ("of these, turns back", str(of_python.turns_back(of_python.STOPS_OF_BATCH))),
        ("files that write Keras's `_distributed_dataset`", str(len(of_python.writers_of(["_distributed_dataset"])))),
        ("variables by thread or context in keras/", str(len(of_python.kept_by_thread()))),
        ("functions of smddp_tf without annotations", str(sum(len(of_python.without_annotations(p)) for p in python))),
        (
            "assignments to Keras's classes elsewhere",
            str(sum(len(of_python.assignments_to_keras(p.read_text(encoding="utf-8"))) for p in others)),
        ),
        (".py files at the top of smddp_tf", str(sum(path.parent == ROOT / "smddp_tf" for path in python))),
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
