"""The tests in C++: where they are, and the program that holds them."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
PROGRAM = TESTS / "smddp_native_tests"
# Sources of other programs.
OTHERS = ("stress", "fuzz", "fake_gpu")


def sources() -> list[Path]:
    """The files of the tests, as tests/native/CMakeLists.txt takes them."""
    return sorted(file for file in TESTS.rglob("test_*.cc") if file.relative_to(TESTS).parts[0] not in OTHERS)
