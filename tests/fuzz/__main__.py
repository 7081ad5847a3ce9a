"""Feeds hostile bytes to whatever reads from other ranks: python -m tests.fuzz [--seconds S] [--only NAME]."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests import native_programs

TARGETS = ("messages", "device_infos", "coordinator", "start", "node", "engine", "tcp")
CORPUS = Path(__file__).resolve().parent / "corpus"
FLAGS = "-fsanitize=fuzzer-no-link -fno-sanitize=function,vptr -Wno-pass-failed"


def main() -> None:
    """Builds with clang and runs each target; ends with 1 when one has found something."""
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("--seconds", type=int, default=10, help="for each target (10)")
    parser.add_argument("--only", choices=TARGETS, help="one target instead of all")
    parser.add_argument("--keep", action="store_true", help="merge what was found to be new into tests/fuzz/corpus")
    parser.add_argument("--seeds", action="store_true", help="write the first inputs of tests/fuzz/corpus anew")
    asked = parser.parse_args()
    compiler = shutil.which("clang++")
    if compiler is None:
        raise SystemExit("Fuzzing needs clang++ and libFuzzer: apt-get install clang, dnf install clang compiler-rt.")
    settings = {
        "CMAKE_CXX_COMPILER": compiler,
        "CMAKE_CXX_FLAGS": FLAGS,
        "SMDDP_SANITIZE": "address,undefined",
    }
    programs = native_programs.build("fuzz", "tests/fuzz", settings)
    for name in TARGETS:
        (CORPUS / name).mkdir(parents=True, exist_ok=True)
    if asked.seeds:
        subprocess.run([str(programs / "seeds"), str(CORPUS)], check=True)
    failed = [name for name in TARGETS if asked.only in (None, name) and not run(programs, name, asked)]
    if failed:
        raise SystemExit(f"fuzz: {', '.join(failed)} found something; the input lies in build/fuzz/found.")


def run(programs: Path, name: str, asked: argparse.Namespace) -> bool:
    """Runs one target from its corpus; True when nothing was found."""
    corpus, found = CORPUS / name, programs.parents[1] / "found"
    found.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as fresh:
        command = [
            str(programs / f"fuzz_{name}"),
            f"-max_total_time={asked.seconds}",
            f"-artifact_prefix={found}/{name}-",
            "-timeout=60",
            "-rss_limit_mb=4096",
            "-max_len=65536",
            "-print_final_stats=1",
        ]
        done = subprocess.run(
            [*command, fresh, str(corpus)],
            env=native_programs.environment(),
            cwd=fresh,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
        if done.returncode:
            print(done.stdout, file=sys.stderr)
        if asked.keep and not done.returncode:
            subprocess.run([command[0], "-merge=1", str(corpus), fresh], capture_output=True, check=True)
    runs = [line.split()[-1] for line in done.stdout.splitlines() if line.startswith("stat::number_of_executed_units")]
    print(f"fuzz {name}: {runs[0] if runs else '?'} inputs, {'nothing found' if not done.returncode else 'FOUND'}")
    return done.returncode == 0


if __name__ == "__main__":
    main()
