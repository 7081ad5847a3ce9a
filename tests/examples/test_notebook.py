"""examples/notebook.ipynb runs from its first cell to the last, and starts ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.mpirun import ROOT, environment

pytestmark = pytest.mark.launches


def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat = pytest.importorskip("nbformat", reason="nbformat, of the extra `test`, is not installed")
    nbclient = pytest.importorskip("nbclient", reason="nbclient, of the extra `test`, is not installed")
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    notebook = nbformat.read(ROOT / "examples/notebook.ipynb", as_version=4)
    nbclient.NotebookClient(
        notebook, timeout=150, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    ).execute()
    printed = "".join(output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", []))
    for rank in range(2):
        assert f"rank {rank}: loss " in printed
    assert printed.rstrip().endswith("True"), printed
