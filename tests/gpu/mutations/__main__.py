"""Makes each fault of table.py in a copy of the sources and runs the tests that must find it, on the fake CUDA.

    python -m tests.gpu.mutations [--only WORDS] [--engine] [--ops]

The copy is build/mutations. Prints a row for each; fails when a fault was not found.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from tests.gpu.mutations.table import MUTATIONS, OPS, Mutation

ROOT = Path(__file__).resolve().parents[3]
COPY = ROOT / "build" / "mutations"
BUILT = ("smddp_tf/*.so", "smddp_tf/_build_info.py", "tests/*.so", "build/doctest/**/*")
SECONDS = 1200  # of a build, or of a test that hangs
# What is built in the copy, by Mutation.builds.
TARGETS = {"engine": "smddp_core _smddp_test_core smddp_native_tests", "ops": "smddp_tf_ops smddp_tf_xla"}
NO_TESTS_RAN = (2, 3, 4, 5)  # pytest: interrupted, internal error, usage, nothing collected


def copy_sources() -> None:
    """The files that git knows and what was built in place; what the copy has built stays."""
    known = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    built = [str(file.relative_to(ROOT)) for pattern in BUILT for file in ROOT.glob(pattern)]
    for name in filter(None, [*known, *built]):
        source, target = ROOT / name, COPY / name
        if source.is_file() and not (target.exists() and target.read_bytes() == source.read_bytes()):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)


def run(*command: str, **environment: str) -> tuple[int, str]:
    """Of a command in the copy: the exit status, and the last line that it wrote."""
    variables = {**os.environ, "PYTHONPATH": str(COPY), **environment}
    try:
        done = subprocess.run(
            command, cwd=COPY, env=variables, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return 124, f"not done after {SECONDS} s"
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    for word in ("fake GPU", "FAILED", "ERROR", "Fatal Python error"):
        if telling := [line for line in lines if line.startswith(word)]:
            return done.returncode, telling[0]
    return done.returncode, lines[-1] if lines else ""


def build(what: str) -> None:
    status, words = run(
        sys.executable, "setup.py", "-q", "build_ext", "--inplace",
        SMDDP_BUILD_TARGETS=TARGETS[what], SMDDP_CUDA="off",
    )  # fmt: skip
    if status != 0:
        raise RuntimeError(f"{TARGETS[what]} cannot be built: {words}")


def test(name: str) -> tuple[int, str]:
    interface = "" if name == OPS else "cuda"  # TensorFlow's device needs more of the fake GPU
    return run(sys.executable, "-m", "pytest", "-x", "-q", f"tests/{name}", FAKE_GPU_INTERFACE=interface)


def found(mutation: Mutation) -> tuple[bool, str]:
    """Whether the tests find it, and how."""
    file = COPY / mutation.file
    text = file.read_text(encoding="utf-8")
    if text.count(mutation.old) != 1:
        return False, f"{text.count(mutation.old)} places instead of one in {mutation.file}: mend table.py"
    file.write_text(text.replace(mutation.old, mutation.new), encoding="utf-8")
    try:
        if mutation.builds:
            build(mutation.builds)
        status, words = test(mutation.test)
    except RuntimeError as error:
        return False, str(error)
    finally:
        file.write_text(text, encoding="utf-8")
    return status != 0 and status not in NO_TESTS_RAN, words


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.mutations", description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="those in whose description these words are")
    parser.add_argument("--engine", action="store_true", help="also those for which the engine is built (minutes)")
    parser.add_argument("--ops", action="store_true", help="also those for which TensorFlow's ops are built (longer)")
    options = parser.parse_args()
    copy_sources()
    asked = {"", *(what for what in TARGETS if getattr(options, what))}
    chosen = [each for each in MUTATIONS if options.only in each.what and each.builds in asked]
    for what in sorted({each.builds for each in chosen} - {""}):
        build(what)
    for name in sorted({each.test for each in chosen}):
        status, words = test(name)
        if status != 0:
            print(f"{name} fails without a fault: {words}")
            return 1
    missed = 0
    print("| fault | found by |\n|---|---|", flush=True)
    for mutation in chosen:
        begin = time.monotonic()
        is_found, words = found(mutation)
        missed += not is_found
        seconds = time.monotonic() - begin
        print(f"| {mutation.what} | {'' if is_found else 'NOT FOUND: '}{words[:120]} ({seconds:.0f} s) |", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
