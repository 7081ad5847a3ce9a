"""Names in /dev/shm: what a killed job left behind goes at the next start, what is in use stays, nothing is added."""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.mpirun import launch

pytestmark = pytest.mark.launches

FOLDER = Path("/dev/shm")
OLD_SECONDS = 3600.0


@pytest.fixture
def leave_behind() -> Iterator:
    made: list[Path] = []

    def leave(what: str, age_seconds: float) -> Path:
        path = FOLDER / f"smddp-{os.geteuid()}-00000000-00000000-{what}-0-{os.getpid():08x}"
        path.write_bytes(b"left behind")
        os.utime(path, (time.time() - age_seconds,) * 2)
        made.append(path)
        return path

    yield leave
    for path in made:
        path.unlink(missing_ok=True)


def test_the_next_start_removes_names_without_an_owner(leave_behind) -> None:
    stale, fresh, held = (
        leave_behind("stale", OLD_SECONDS),
        leave_behind("fresh", 0.0),
        leave_behind("held", OLD_SECONDS),
    )
    link = FOLDER / f"smddp-{os.geteuid()}-link-{os.getpid()}"
    link.symlink_to(fresh)
    try:
        with held.open("r+b") as file:
            fcntl.lockf(file, fcntl.LOCK_EX)
            job = launch([Path(__file__).with_name("leave_names.py")], 2, timeout=120).check()
            assert not stale.exists()
            assert fresh.exists()  # its owner may be about to lock it
            assert held.exists()
            assert link.is_symlink()
    finally:
        link.unlink()
    ranks = re.findall(r"process (\d+)", job.output)
    assert len(ranks) == 2, job.output
    assert not [name for rank in ranks for name in FOLDER.glob(f"smddp-{os.geteuid()}-*-*-{rank}-*")]
