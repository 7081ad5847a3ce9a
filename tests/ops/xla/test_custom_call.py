"""The custom calls of gradients that are handed over one by one, where XLA moves them and where it does not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.mpirun import launch

pytestmark = pytest.mark.launches

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import build_env  # noqa: E402

_FLAGS = ("-shared", "-fPIC", "-O0", "-std=c++17", "-D_GLIBCXX_USE_CXX11_ABI=1", "-DEIGEN_MAX_ALIGN_BYTES=64")


def test_gradients_that_move_are_reduced_at_the_end(tmp_path):
    package, tensorflow = ROOT / "smddp_tf", Path(build_env.find_tensorflow().directory)
    if not (package / "libsmddp_tf_xla.so").exists():
        pytest.skip("this TensorFlow has no headers of XLA")
    library = tmp_path / "libstarted_gradients.so"
    words = [build_env.find_compiler(), *_FLAGS, f"-I{ROOT / 'tf_ops'}", "-isystem", str(tensorflow / "include")]
    words += [str(HERE / "started_gradients.cc"), "-o", str(library), str(package / "libsmddp_tf_xla.so")]
    words += [f"-Wl,-rpath,{package}", f"-L{tensorflow}", "-Wl,--allow-shlib-undefined"]
    subprocess.run(words, check=True, timeout=300)
    output = launch([HERE / "started_ranks.py", str(library)], ranks=2, timeout=120).check().output
    assert output.count("is through") == 2
