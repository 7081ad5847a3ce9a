"""Puts doctest's header, which the tests in C++ need, into build/doctest where the compiler has none, without root.

The package doctest-dev is unpacked there with apt and dpkg-deb. Where these are missing, or cannot reach their servers,
a line says what to do; the tests in C++ are left out then. `make build` calls this once.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import build_env


def unpack(folder: Path) -> str:
    """Downloads the package and unpacks it; returns what went wrong, or ""."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        try:
            fetch = ["apt-get", "download", "-qq", "doctest-dev"]
            subprocess.run(fetch, cwd=temporary, capture_output=True, text=True, check=True)
            for package in Path(temporary).glob("*.deb"):
                subprocess.run(["dpkg-deb", "-x", package, folder], capture_output=True, text=True, check=True)
        except OSError as error:
            return str(error)
        except subprocess.CalledProcessError as error:
            return f"{' '.join(map(str, error.cmd[:2]))}: {error.stderr.strip()}"
    return ""


def main() -> int:
    """Tries it once; not to get the header is no error."""
    build_env.DOCTEST.mkdir(parents=True, exist_ok=True)
    compiler = build_env.find_compiler()
    if build_env.has_doctest(compiler):
        return 0
    problem = unpack(build_env.DOCTEST)
    if not build_env.has_doctest(compiler):
        print(f"The tests in C++ are left out. {problem}\n{build_env.INSTALL_DOCTEST}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
