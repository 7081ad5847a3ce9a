"""tools/nvrtc.py, with a library that says what it was given."""

import subprocess
import sys

import pytest

from tests.tools.build_environment import build_env
from tests.tools.fake_nvrtc import fake_nvrtc


@pytest.fixture
def compile_with(tmp_path):
    """Runs the program on a source with these words; returns what ran and the file it should have made."""
    library, made = fake_nvrtc(tmp_path / "libnvrtc.so.12", "12.9"), tmp_path / "made"

    def run(words: str, *options: str):
        source = tmp_path / "move.cu"
        source.write_text(words)
        command = [sys.executable, build_env.NVRTC, f"--library={library}", *options, "-o", made, source]
        return subprocess.run(command, capture_output=True, text=True, check=False), made

    return run


def test_it_lists_what_it_knows(tmp_path):
    library = fake_nvrtc(tmp_path / "libnvrtc.so.12", "12.9")
    command = [sys.executable, build_env.NVRTC, f"--library={library}", "--list-gpu-code"]
    assert subprocess.run(command, capture_output=True, text=True).stdout.split() == ["12.9", "sm_70", "sm_80", "sm_90"]


def test_machine_code_and_ptx(compile_with):
    done, made = compile_with("kernel", "-cubin", "-arch=sm_80", "-std=c++17", "-fmad=false", "-ccbin", "g++", "-Ihere")
    assert done.returncode == 0, done.stderr
    assert made.read_text() == (
        "-arch=sm_80 -std=c++17 -fmad=false -Ihere | cstdint cstring type_traits | move.cu: kernel"
    )
    done, made = compile_with("kernel", "-ptx", "-arch=compute_80")
    assert done.returncode == 0, done.stderr
    assert made.read_text() == "PTX"


def test_errors_of_the_source_are_shown(compile_with):
    done, made = compile_with("wrong", "-cubin", "-arch=sm_80")
    assert done.returncode == 1
    assert "move.cu(3): error: wrong" in done.stderr
    assert "nvrtcCompileProgram: NVRTC_ERROR_COMPILATION" in done.stderr
    assert not made.exists()


def test_what_is_to_be_made_has_to_be_said(compile_with):
    done, _ = compile_with("kernel", "-arch=sm_80")
    assert done.returncode == 2
    assert "-cubin or -ptx" in done.stderr
