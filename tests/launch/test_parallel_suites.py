"""Runs tests/parallel under mpirun, once for each arrangement of ranks and nodes.

Two ranks run everything. Elsewhere only what depends on the arrangement is run: nodes for what travels between them and
for ranks that come and go, one rank for what a program that was not launched does. The arithmetic of ranks and nodes
itself is tested in tests/native, on up to eight ranks. With SMDDP_TEST_FULL everything is run everywhere, and also on
three ranks of one node.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.launch.mpirun import Finished, launch
from tests.variants import FULL

TIMEOUT_SECONDS = 1800  # a stuck test ends the job much sooner, by its own deadline
SLOWEST = 10  # tests that are printed

ROOT = Path(__file__).resolve().parents[2]
# What the names of files begin with.
EVERYTHING = ("",)
ON_NODES = (
    "basics",
    "call_sites",
    "collectives_adasum",
    "collectives_rows",
    "collectives_scales",
    "collectives_tf",
    "join",
    "parts",
    "process_sets",
    "sharded_weights",
    "traffic",
)
# Where the nodes differ in size, the ranks' shares do: what is reduced, and by whom, is tested on even nodes.
ON_UNEVEN_NODES = tuple(name for name in ON_NODES if name not in ("call_sites", "parts"))
ALONE = ("basics", "collectives_tf", "functions", "join", "keras_optimizer", "sdp", "sparse", "tape")

# Ranks, pretended nodes, and the files that are run.
ARRANGEMENTS = {
    "1 rank": (1, None, ALONE),
    "2 ranks": (2, None, EVERYTHING),
    "4 ranks on 2 pretended nodes": (4, "2,2", (*ON_NODES, "elastic", "read_bytes")),
    "3 ranks on 2 uneven nodes": (3, "2,1", (*ON_UNEVEN_NODES, "keras_uneven")),
}
if FULL:
    ARRANGEMENTS["3 ranks"] = (3, None, EVERYTHING)


@pytest.mark.parametrize(
    ("ranks", "nodes", "names"),
    [
        pytest.param(*values, id=name, marks=[pytest.mark.one_process] if values[0] == 1 else [])
        for name, values in ARRANGEMENTS.items()
    ],
)
def test_parallel_suite(
    ranks: int, nodes: str | None, names: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["-m", "pytest", *_files(EVERYTHING if FULL else names), "-p", "tests.mpi_plugin"]
    arguments += ["-p", "no:cacheprovider", "-q", "--color=no", f"--durations={SLOWEST}", "--rank-logs", str(tmp_path)]
    if nodes is not None:
        arguments += ["--pretend-nodes", nodes]
    finished = launch(arguments, ranks, TIMEOUT_SECONDS)
    _check(finished, tmp_path)
    passed = re.search(r"(\d+) passed", finished.output)
    assert passed, f"No test passed. The job printed:\n{finished.output}"
    slowest = re.findall(r"^[\d.]+s (?:call|setup|teardown) .*$", finished.output, re.MULTILINE)
    with capsys.disabled():
        print("", f"{passed.group(1)} tests passed in {finished.seconds:.0f} s; the slowest:", *slowest, sep="\n")


def _files(names: tuple[str, ...]) -> list[str]:
    found = {name: sorted((ROOT / "tests/parallel").glob(f"test_{name}*.py")) for name in names}
    missing = [name for name, files in found.items() if not files]
    assert not missing, f"no files of tests/parallel begin with {missing}"
    return [str(file.relative_to(ROOT)) for files in found.values() for file in files]


def _check(finished: Finished, logs: Path) -> None:
    try:
        finished.check()
    except AssertionError as error:
        tails = [f"===== {log.name}\n{log.read_text(errors='replace')[-8000:]}" for log in sorted(logs.glob("*.log"))]
        raise AssertionError("\n".join([str(error), *tails])) from None
