"""Builds what a release would upload, checks and tries it, and prints it: `make release-check`. Uploads nothing.

The version is that of the file VERSION. Wheel and sdist are those of `make wheel`. The wheel is installed into a new
environment, .matrix/release, and trains there.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import build_wheel
from build_wheel import DIST, ROOT

FRESH = ROOT / ".matrix" / "release"
TENSORFLOW = os.environ.get("TENSORFLOW", "tensorflow-cpu==2.21.*")
NEEDED = ("VERSION", "LICENSE", "SECURITY.md", "CHANGELOG.md", "docs/index.md", "docs/launching.md", "docker/README.md",
          "tf_ops/core/CMakeLists.txt", "tests/tools/test_files.py")  # fmt: skip
NOT_WANTED = re.compile(r"tests/fuzz/corpus/|\.so$|\.pyc$|_build_info\.py$")


def run(*command: str | Path, python: str | Path = sys.executable, where: Path = ROOT) -> str:
    """`python -m COMMAND...`; its output, which is shown when it fails."""
    return build_wheel.run(python, "-m", *command, where=where)


def check_changelog(version: str) -> None:
    """The changelog has a section for this version."""
    if not re.search(rf"^## \[{re.escape(version)}\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M):
        sys.exit(f"release-check: VERSION is {version}, and CHANGELOG.md has no section `## [{version}]`.")


def check_sdist(sdist: Path) -> None:
    """It has the sources, tests and documents, and no files that are made."""
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wrong = [f"without {name}" for name in NEEDED if name not in names]
    wrong += [f"with {name}" for name in sorted(names) if NOT_WANTED.search(name)]
    if wrong:
        sys.exit(f"release-check: {sdist.name} is {', '.join(wrong[:5])}.")


def try_wheel(wheel: Path, version: str) -> None:
    """Installs the wheel into a new environment, where two ranks train to the same weights."""
    shutil.rmtree(FRESH, ignore_errors=True)
    run("venv", FRESH)
    python = FRESH / "bin" / "python"
    run("pip", "install", "-q", TENSORFLOW, python=python)
    run("pip", "install", "-q", wheel, python=python)
    run("pip", "check", python=python)
    # Elsewhere than in the checkout, whose package Python would take, and whose folder gets the model.
    if version not in (found := run("smddp_tf.run", "--version", python=python, where=FRESH)):
        sys.exit(f"release-check: expected {version} from smddprun --version. Received: {found}")
    output = run("smddp_tf.run", "-np", "2", python, ROOT / "examples/train.py", python=python, where=FRESH)
    sums = re.findall(r"rank \d of 2: sum of the weights (\S+)", output)
    if len(sums) != 2 or len(set(sums)) != 1:
        sys.exit(f"{output}\nrelease-check: expected equal weights on 2 ranks. Received: {sums}.")
    print(f"smoke test in {FRESH}: 2 ranks, sum of the weights {sums[0]} on both")


def main() -> None:
    version = (ROOT / "VERSION").read_text(encoding="utf-8").strip()
    check_changelog(version)
    shutil.rmtree(DIST, ignore_errors=True)
    subprocess.run(["make", "wheel"], cwd=ROOT, check=True)
    files = sorted(DIST.iterdir())
    print(run("twine", "check", "--strict", *files).strip())
    [sdist], [wheel] = ([file for file in files if file.name.endswith(end)] for end in (".tar.gz", ".whl"))
    check_sdist(sdist)
    try_wheel(wheel, version)
    print(f"\nsmddp_tf {version}; would be uploaded, and is not:")
    for file in files:
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        print(f"  {file.name}  {file.stat().st_size / 2**20:.1f} MiB  sha256 {digest}")


if __name__ == "__main__":
    main()
