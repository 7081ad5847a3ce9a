"""What the tests of wheels share."""

import os
import sys

import pytest

from smddp_tf._native import prebuilt


@pytest.fixture
def wheel(monkeypatch, tmp_path):
    """A package with what a wheel holds, in an environment without MPI and without a launcher."""
    umask = os.umask(0o022)
    package, prefix = tmp_path / "smddp_tf", tmp_path / "env"
    for minor in ("2.9", "2.16", "2.21"):
        (package / "prebuilt" / f"tensorflow-{minor}").mkdir(parents=True)
    for number in (12, 40):
        (package / f"libsmddp_mpi.mpi{number}.so").touch()
    (prefix / "lib").mkdir(parents=True)
    monkeypatch.setattr(prebuilt, "PACKAGE", package)
    monkeypatch.setattr(prebuilt, "FOLDER", package / "prebuilt")
    monkeypatch.setattr(prebuilt, "build_info", lambda name: "")
    monkeypatch.setattr(prebuilt, "wheel_folders", lambda name: [])
    monkeypatch.setattr(sys, "prefix", str(prefix))
    for name in ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"):
        monkeypatch.delenv(name, raising=False)
    opened = {"there": set(), "in the process": set()}
    monkeypatch.setattr(prebuilt, "_opens", lambda name, mode=0: name in opened["in the process" if mode else "there"])

    def choose(installed=(), **names):
        for name in installed:
            (prefix / "lib" / name).touch()
        opened.update({key.replace("_", " "): set(value) for key, value in names.items()})
        return prebuilt.mpi_library.__wrapped__().replace(f"{prefix}/", "")

    yield choose
    os.umask(umask)
