"""Which NCCL library is loaded, and which ones are refused."""

import shutil
import subprocess
import sys

import pytest

from tests import fake_gpu
from tests.fake_gpu.gpu import GpuError, call

pytestmark = pytest.mark.usefixtures("nccl_gpus")


def test_versions(nccl, tmp_path, monkeypatch):
    assert call("group_version", nccl) == 22703
    for version, words in ((21304, "2.13.4"), (2806, "2.8 or older")):
        library = tmp_path / f"libnccl.so.{version}"
        library.symlink_to(fake_gpu.build_nccl())
        monkeypatch.setenv("FAKE_NCCL_VERSION", str(version))
        with pytest.raises(GpuError, match=f"bad_state: {library} is NCCL {words}, and smddp_tf needs 2.14"):
            call("load_groups", str(library).encode())
    monkeypatch.setenv("FAKE_NCCL_VERSION", "21400")
    assert call("group_version", call("load_groups", str(library).encode())) == 21400


def test_libraries_that_are_not_nccl():
    with pytest.raises(GpuError, match="NCCL cannot be loaded: /none.so: .*SMDDP_NCCL_LIBRARY"):
        call("load_groups", b"/none.so")
    with pytest.raises(GpuError, match="is not a complete NCCL library: it lacks ncclGetVersion"):
        call("load_groups", str(fake_gpu.build()).encode())


def test_nccl_is_found_in_the_folder_of_packages(tmp_path):
    plugin = tmp_path / "site-packages" / "smddp_tf" / "libsmddp_cuda.so"
    wheel = tmp_path / "site-packages" / "nvidia" / "nccl" / "lib" / "libnccl.so.2"
    for file, source in ((plugin, fake_gpu.build()), (wheel, fake_gpu.build_nccl())):
        file.parent.mkdir(parents=True)
        shutil.copy(source, file)
    program = (
        "import ctypes, sys; library = ctypes.CDLL(sys.argv[1]); load = library.fake_gpu_load_groups;"
        "load.restype = ctypes.c_void_p; print(library.fake_gpu_group_version(ctypes.c_void_p(load(b''))))"
    )
    told = subprocess.run([sys.executable, "-c", program, plugin], capture_output=True, text=True, timeout=60)
    assert told.stdout.strip() == "22703", told.stderr
