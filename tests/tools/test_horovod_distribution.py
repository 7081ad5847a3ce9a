"""The distribution `horovod` (packaging/horovod): pip counts it as Horovod, and imports lead to smddp_tf."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.mpirun import LEFT_OUT, ROOT, STARTUP, environment

pytestmark = [pytest.mark.launches, pytest.mark.one_process]

IMPORTS = """
import importlib.metadata, importlib.util
from importlib.metadata import entry_points, version
assert version("horovod") == "0.28.1+smddp"
assert importlib.util.find_spec("horovod.common.util").name == "horovod.common.util"
import horovod
import horovod.run
from horovod.common.util import split_list
from horovod.tensorflow.mpi_ops import Sum
import horovod.tensorflow as hvd
import horovod.tensorflow.keras, horovod.keras.callbacks
import smddp_tf
assert horovod.__version__ == "0.28.1" and hvd.init is smddp_tf.init and Sum == smddp_tf.Sum
hvd.init()
try:
    import horovod.torch
except ImportError as error:
    assert "smddp_tf stands for horovod here" in str(error), error
else:
    raise AssertionError("horovod.torch was imported")
print("rank", hvd.rank(), "of", hvd.size())
"""


def run(folder: Path, *command: str | Path) -> subprocess.CompletedProcess[str]:
    """A command that finds what was installed into the folder."""
    env = environment({"PYTHONPATH": os.pathsep.join(map(str, (folder, ROOT, STARTUP, *LEFT_OUT)))})
    return subprocess.run(list(map(str, command)), env=env, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the distribution, installed without a network; pip builds beside the sources, so from a copy."""
    sources, folder = tmp_path_factory.mktemp("sources") / "horovod", tmp_path_factory.mktemp("site")
    shutil.copytree(ROOT / "packaging" / "horovod", sources, ignore=shutil.ignore_patterns("build", "*.egg-info"))
    flags = ("--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check", "--target")
    done = run(folder, sys.executable, "-m", "pip", "install", "-q", *flags, folder, sources)
    assert done.returncode == 0, done.stderr
    return folder


def test_imports(installed: Path) -> None:
    done = run(installed, sys.executable, "-c", IMPORTS)
    assert done.stdout == "rank 0 of 1\n", done.stderr


def test_horovodrun(installed: Path, tmp_path: Path) -> None:
    """The executable starts ranks, which find the module without the alias being switched on."""
    script = tmp_path / "train.py"
    script.write_text(IMPORTS)
    line = ("-np", "2", "--gloo", sys.executable, script)
    done = run(installed, sys.executable, installed / "bin" / "horovodrun", *line)
    assert done.returncode == 0, done.stderr
    assert "rank 0 of 2" in done.stdout
    assert "rank 1 of 2" in done.stdout
    assert "without MPI" in done.stderr


@pytest.mark.parametrize(("requirement", "is_met"), [(">=0.26.1", True), ("==0.28.1", True), (">=0.29", False)])
def test_requirements_of_others(installed: Path, tmp_path: Path, requirement: str, is_met: bool) -> None:
    """`pip check` on a package that requires Horovod."""
    package = tmp_path / "needs_horovod-1.dist-info"
    package.mkdir()
    text = f"Metadata-Version: 2.1\nName: needs-horovod\nVersion: 1\nRequires-Dist: horovod{requirement}\n"
    (package / "METADATA").write_text(text)
    done = run(Path(f"{installed}{os.pathsep}{tmp_path}"), sys.executable, "-m", "pip", "check")
    about = [line for line in done.stdout.splitlines() if "horovod" in line]
    assert (not about) == is_met, done.stdout + done.stderr


def test_it_is_not_installed_with_smddp_tf() -> None:
    """It must not take the place of a Horovod unasked."""
    scripts = (ROOT / "pyproject.toml").read_text(encoding="utf-8").split("[project.scripts]")[1].split("[")[0]
    assert "horovodrun" not in scripts
    assert not (ROOT / "horovod").exists()
