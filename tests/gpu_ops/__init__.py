"""The kernels for GPUs inside of TensorFlow, on the GPU in host memory (tests/fake_gpu): `make test-gpu-ops`.

TensorFlow is given a device "GPU" whose memory the host cannot touch (tf_device.cc), and XLA's own call of custom calls
is made with a stream of it (xla_call.cc). It has no kernels for it but those that copy, and ours. Made for the headers
of TensorFlow 2.21; not part of `make test`, because these two files take half a minute to compile. They are kept in
build/gpu_ops, for each state of what they may include.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

from tests import fake_gpu

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "tools"))

import build_env  # noqa: E402

_FLAGS = ("-shared", "-fPIC", "-O1", "-std=c++17", "-D_GLIBCXX_USE_CXX11_ABI=1", "-DEIGEN_MAX_ALIGN_BYTES=64")
_TENSORFLOW = ("-l:libtensorflow_cc.so.2", "-l:libtensorflow_framework.so.2", "-Wl,--allow-shlib-undefined")


def build() -> tuple[Path, Path, Path]:
    """Compiles the fake GPU, TensorFlow's device on it, and the caller of our custom call, unless that was done."""
    found = build_env.find_tensorflow()
    state = hashlib.sha256(repr((found, _FLAGS, _TENSORFLOW, fake_gpu.build().name)).encode())
    for file in sorted([*HERE.glob("*.h"), *HERE.glob("*.cc"), *(ROOT / "tf_ops").rglob("*.h")]):
        state.update(file.read_bytes())
    into = ROOT / "build" / "gpu_ops" / state.hexdigest()[:16]
    if not into.exists():
        into.parent.mkdir(parents=True, exist_ok=True)
        half = Path(tempfile.mkdtemp(dir=into.parent))
        _compile(half, Path(found.directory))
        half.replace(into)
    return fake_gpu.build(), into / "libtf_device.so", into / "libxla_call.so"


def _compile(into: Path, tensorflow: Path) -> None:
    package = ROOT / "smddp_tf"
    fake = fake_gpu.build()
    (into / "mlir" / "IR").mkdir(parents=True)
    # A header that XLA's asks for and that no wheel has.
    (into / "mlir" / "IR" / "BuiltinAttributes.h").write_text("namespace mlir { class DictionaryAttr {}; }\n")
    include = tensorflow / "include"
    headers = ["-I", str(ROOT / "tf_ops"), "-isystem", str(into), "-isystem", str(include)]
    headers += ["-isystem", str(include / "external/highwayhash")]
    headers += ["-isystem", str(include / "external/farmhash_archive/src")]
    for name, libraries in (("tf_device", [fake]), ("xla_call", [package / "libsmddp_tf_xla.so"])):
        library = into / f"lib{name}.so"
        folders = [f"-Wl,-rpath,{path.parent}" for path in libraries]
        words = [build_env.find_compiler(), *_FLAGS, *headers, str(HERE / f"{name}.cc"), "-o", str(library)]
        words += [*map(str, libraries), *folders, f"-L{tensorflow}", *_TENSORFLOW]
        subprocess.run(words, check=True, timeout=600)
