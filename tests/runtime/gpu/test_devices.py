"""The library with the GPUs (tf_ops/runtime/gpu/devices.h): how it is found and loaded, and what is said where not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import smddp_tf
from tests.tools.build_environment import build_env

ROOT = Path(__file__).resolve().parents[3]
OTHER_LIBRARY = Path(smddp_tf.__file__).with_name("libsmddp_core.so")
FIND = "print(json.dumps(core().gpu_support()));"


@pytest.fixture(scope="module")
def some_gpu(tmp_path_factory):
    library = tmp_path_factory.mktemp("some_gpu") / "libsome_gpu.so"
    source = Path(__file__).with_name("some_gpu.cc")
    command = [
        build_env.find_compiler(),
        "-std=c++17",
        "-shared",
        "-fPIC",
        f"-I{ROOT / 'tf_ops'}",
        "-o",
        library,
        source,
    ]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return library


def lines(library: Path | str, program: str, **variables: str) -> list[str]:
    """What a process prints that has this library."""
    environment = {**os.environ, "SMDDP_GPU_LIBRARY": str(library), **variables}
    command = [sys.executable, "-c", f"import json; from tests.native_module import core; {program}"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def found(*arguments, **variables: str) -> dict[str, object]:
    return json.loads(lines(*arguments, FIND, **variables)[-1])


def test_a_file_that_is_no_library(tmp_path):
    text = tmp_path / "text.so"
    text.write_text("not a library\n")
    for path, words in ((text, "file too short"), (tmp_path / "none.so", "No such file")):
        said = found(path)
        assert said["count"] == 0
        assert said["platform"] == ""
        assert said["why_none"].startswith("The GPU part of smddp_tf cannot be loaded: ")
        assert words in said["why_none"] or "invalid ELF header" in said["why_none"]
        assert said["why_no_nccl"] == said["why_none"]


def test_a_library_without_the_function():
    said = found(OTHER_LIBRARY)
    expected = f"{OTHER_LIBRARY} belongs to another version of smddp_tf. Build or install smddp_tf again."
    assert (said["count"], said["why_none"]) == (0, expected)


def test_a_library_of_another_version(some_gpu, tmp_path):
    """The same source with another number."""
    header = ROOT / "tf_ops" / "device" / "plugin.h"
    text = header.read_text(encoding="utf-8")
    number = text.split("kDevicePluginVersion = ")[1].split(";")[0]
    other = tmp_path / "device" / "plugin.h"
    other.parent.mkdir()
    other.write_text(text.replace(f"kDevicePluginVersion = {number}", f"kDevicePluginVersion = {number}0"))
    library = tmp_path / "libother.so"
    include = [f"-I{tmp_path}", f"-I{ROOT / 'tf_ops'}"]
    source = Path(__file__).with_name("some_gpu.cc")
    command = [build_env.find_compiler(), "-std=c++17", "-shared", "-fPIC", *include, "-o", library, source]
    subprocess.run(command, check=True, capture_output=True, text=True)
    assert "belongs to another version of smddp_tf" in found(library)["why_none"]
    assert found(some_gpu, SOME_GPU_COUNT="3")["count"] == 3


def test_it_is_loaded_and_its_gpus_are_counted_once(some_gpu):
    said = lines(some_gpu, FIND * 3, SOME_GPU_COUNT="2", SMDDP_NCCL_LIBRARY="/some/libnccl.so")
    assert [line for line in said if not line.startswith("{")] == ["made /some/libnccl.so", "count"]
    expected = {"platform": "some platform", "count": 2, "why_none": "", "nccl_version": 0, "why_no_nccl": "no NCCL"}
    assert [json.loads(line) for line in said if line.startswith("{")] == [expected] * 3


def test_the_library_says_why_there_are_no_gpus(some_gpu):
    said = found(some_gpu)
    assert (said["platform"], said["count"], said["why_none"]) == ("some platform", 0, "no driver")


def test_a_tensor_that_is_in_host_memory_is_no_gpu_tensor(some_gpu):
    """A stream is asked about its memory until it is known on which GPU it is."""
    program = (
        "import smddp_tf as hvd; hvd.init()\n"
        "ask = lambda stream: core().gpu_allreduce([(4096, [1])], 'float32', 'x', 1,"
        " stream=stream)\n"
        "for stream in (16, 16, 0):\n"
        "    try: ask(stream)\n"
        "    except Exception as error: print(error)"
    )
    said = lines(some_gpu, program, SOME_GPU_COUNT="1")
    words = [line for line in said if "A tensor that was submitted as a GPU tensor is in host memory." in line]
    assert len(words) == 3
    assert said.count("device_of") == 3
