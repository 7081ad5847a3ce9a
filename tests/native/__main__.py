"""Builds the tests in C++ apart, with the whole engine in that build type, and runs them: python -m tests.native --gdb.

Arguments that are not listed go to the tests: -ltc lists them, -tc='the name*' and -sf='*test_shape.cc' choose.
"""

from __future__ import annotations

import argparse
import os
import sys

from tests import native_programs


def main() -> None:
    """Becomes the program, or the debugger with it."""
    parser = argparse.ArgumentParser(prog="python -m tests.native", description=__doc__)
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--gdb", action="store_true", help="without optimisation, in gdb")
    how.add_argument("--sanitize", metavar="LIST", help="under sanitizers: address,undefined or thread")
    asked, rest = parser.parse_known_args()
    settings = {"SMDDP_SANITIZE": asked.sanitize} if asked.sanitize else {"CMAKE_BUILD_TYPE": "Debug"}
    name = f"native-tests-{(asked.sanitize or 'debug').replace(',', '-')}"
    native_programs.build(name, "tests/native", settings, ["smddp_native_tests"])
    program = str(native_programs.ROOT / "build" / name / "tests-package" / "smddp_native_tests")
    # A failed check stops in the debugger. The program names its sources from the repository, or from tf_ops.
    folders = f"{native_programs.ROOT}:{native_programs.ROOT / 'tf_ops'}"
    debugger = ["gdb", "-ex", f"directory {folders}", "--args"] if asked.gdb else []
    command = [*debugger, program, *rest]
    sys.stdout.flush()
    os.chdir(native_programs.ROOT)
    os.execvpe(command[0], command, native_programs.environment())


if __name__ == "__main__":
    main()
