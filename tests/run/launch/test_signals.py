"""Signals to the launcher reach the ranks, and leave nothing behind."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.run.started import LAUNCHER, PATIENCE, RANKS
from tests.support.mpirun import ROOT, environment

pytestmark = pytest.mark.launches


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_after_a_signal(sign: signal.Signals) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "smddp_tf.run", "-np", "2", str(RANKS), "wait"],
        cwd=ROOT, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, text=True,
    )  # fmt: skip
    try:
        assert process.stdout
        ranks = [int(re.findall(r"process (\d+)", process.stdout.readline())[0]) for _ in range(2)]
        process.send_signal(sign)
        code = process.wait(PATIENCE)
        wait_until(lambda: not any(map(is_alive, ranks)), "the ranks to end")
    finally:
        process.kill()
        said = "".join(process.communicate())
    assert ("smddprun: SIGTERM has ended the job of 2 ranks.\n" in said) == (sign == signal.SIGTERM)
    assert code == (-signal.SIGKILL if sign == signal.SIGKILL else 128 + sign)


ENDED_BY_SIGNALS = """
import os, signal, sys, time
from pathlib import Path
path = Path(sys.argv[1], "rank" + os.environ["RANK"])
file = path.open("wb", buffering=0)
for number in signal.SIGUSR1, signal.SIGTERM:
    signal.signal(number, lambda number, _: file.write(b"%d " % number))
file.write(b"started ")
until = time.monotonic() + 60
while b"15" not in path.read_bytes() and time.monotonic() < until:
    time.sleep(0.05)
time.sleep(1.5 if sys.argv[2] == "saves" else 60)
file.write(b"saved")
"""


@pytest.mark.parametrize(
    ("manner", "sign", "code"), [("saves", signal.SIGTERM, 143), ("hangs", signal.SIGINT, 130)], ids=["one", "two"]
)
def test_each_rank_gets_each_signal_once_and_time_to_save(
    tmp_path: Path, manner: str, sign: signal.Signals, code: int
) -> None:
    """Also where the launcher is sent it twice at once, as by `timeout`. A later second signal does not wait."""
    job = subprocess.Popen([*LAUNCHER, sys.executable, "-c", ENDED_BY_SIGNALS, tmp_path, manner], env=environment())
    files = [tmp_path / f"rank{rank}" for rank in range(2)]

    def all_have(words: str) -> bool:
        return all(file.exists() and file.read_text() == words for file in files)

    try:
        wait_until(lambda: all_have("started "), "the ranks to start")
        job.send_signal(signal.SIGUSR1)
        wait_until(lambda: all_have("started 10 "), "SIGUSR1")
        job.send_signal(sign)
        time.sleep(0.001)
        job.send_signal(sign)
        wait_until(lambda: all_have("started 10 15 "), "SIGTERM")
        if manner == "hangs":
            time.sleep(0.6)
            job.send_signal(sign)
            begin = time.monotonic()
        assert job.wait(PATIENCE) == code
    finally:
        job.kill()
    assert all_have("started 10 15 saved" if manner == "saves" else "started 10 15 "), files[0].read_text()
    if manner == "hangs":
        assert time.monotonic() - begin < 8


def wait_until(condition: Callable[[], bool], what: str) -> None:
    give_up_at = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < give_up_at, f"waited for {what} in vain"
        time.sleep(0.05)


def is_alive(process: int) -> bool:
    try:
        return b"ranks_without_tensorflow" in Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return False
