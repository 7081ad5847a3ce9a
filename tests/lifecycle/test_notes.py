"""Messages of a rank to its supervisor: into the pipe that was meant, and into nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from smddp_tf.lifecycle.notes import BEGINS, NOTES, SPEED, tell


def test_notes_end_in_a_zero() -> None:
    reading, writing = os.pipe()
    address = f"{writing}:{os.fstat(writing).st_ino}"
    tell(BEGINS, {NOTES: address})
    tell(SPEED + b"17.5", {NOTES: address})
    os.close(writing)
    assert os.read(reading, 100) == b"I\0S17.5\0"
    os.close(reading)
    tell(BEGINS, {NOTES: address})  # the pipe is closed: nothing is said


@pytest.mark.parametrize("address", ["", "x", "3", "1:2:3", "99999:1"])
def test_without_a_supervisor_nothing_happens(address: str) -> None:
    tell(BEGINS, {NOTES: address})
    tell(BEGINS, {})


def test_another_file_with_the_number_of_the_pipe_is_left_alone(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as file:
        tell(BEGINS, {NOTES: f"{file.fileno()}:{os.fstat(file.fileno()).st_ino}"})
    assert (tmp_path / "file").read_bytes() == b""
    reading, writing = os.pipe()
    tell(BEGINS, {NOTES: f"{writing}:{os.fstat(writing).st_ino + 1}"})
    os.close(writing)
    assert os.read(reading, 100) == b""
    os.close(reading)
