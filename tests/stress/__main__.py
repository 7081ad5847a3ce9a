"""The stress program, the tests in C++ and `native` ones under sanitizers: python -m tests.stress [--only thread]."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

from tests import native_programs
from tests.stress import under_python

# ThreadSanitizer goes with nothing else; LeakSanitizer comes with AddressSanitizer.
BUILDS = {"thread": "thread", "address": "address,undefined"}
NATIVE = "native"  # the tests with that mark, with the second
CPP = "cpp"  # tests/native, with both


def main() -> None:
    """Builds and runs; ends with 1 when a sanitizer or the program itself has found something."""
    parser = argparse.ArgumentParser(prog="make sanitize", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="for each sanitizer (60)")
    parser.add_argument("--first", type=int, default=1, help="the first seed (1)")
    parser.add_argument("--seed", type=int, help="this seed alone, as a failure has printed it")
    parser.add_argument("--only", choices=[*BUILDS, NATIVE, CPP], help="one of them instead of all")
    asked = parser.parse_args()
    which = ["--seed", str(asked.seed)] if asked.seed is not None else ["--first", str(asked.first)]
    programs = [name for name in BUILDS if asked.only in (None, name)]
    failed = False
    if asked.only in (None, NATIVE) and asked.seed is None:
        failed = not under_python.run(BUILDS["address"])
    if asked.only in (None, CPP) and asked.seed is None:
        ended = [_tests_in_cpp(sanitizers) for sanitizers in BUILDS.values()]
        failed |= not all(ended)
    for name in programs:
        settings = {"SMDDP_SANITIZE": BUILDS[name], "SMDDP_DELAYS": "ON"}
        program = native_programs.build(f"stress-{name}", "tests/stress", settings) / "stress"
        start = time.monotonic()
        command = [str(program), "--seconds", str(asked.seconds), *which]
        done = subprocess.run(command, env=native_programs.environment(), check=False)
        ended = "clean" if done.returncode == 0 else f"ended with {done.returncode}"
        print(f"{BUILDS[name]}: {ended} after {time.monotonic() - start:.0f} s", flush=True)
        failed |= done.returncode != 0
    sys.exit(failed)


def _tests_in_cpp(sanitizers: str) -> bool:
    """Whether all passed and nothing was found."""
    command = [sys.executable, "-m", "tests.native", "--sanitize", sanitizers]
    return subprocess.run(command, cwd=native_programs.ROOT, check=False).returncode == 0


if __name__ == "__main__":
    main()
