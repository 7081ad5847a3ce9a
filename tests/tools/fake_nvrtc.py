"""A library in NVRTC's place, which compiles nothing (fake_nvrtc.c)."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

_COMPILER = shutil.which("cc") or shutil.which("c++")  # before a test empties PATH


def fake_nvrtc(library: Path, version: str) -> Path:
    """Compiles it as `library`, with this version.

    Raises:
        subprocess.CalledProcessError: the compiler failed.
    """
    assert _COMPILER is not None
    library.parent.mkdir(parents=True, exist_ok=True)
    major, minor = version.split(".")
    named = [f"-DVERSION_MAJOR={major}", f"-DVERSION_MINOR={minor}"]
    command = [_COMPILER, "-x", "c", "-shared", "-fPIC", *named, "-o", library, Path(__file__).with_suffix(".c")]
    subprocess.run(command, check=True, env={"PATH": "/usr/bin:/bin"})
    return library
