"""Jobs whose ranks come and go, for tests: `elastic_ranks.py` under a launcher, with what happens to it meanwhile."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.support.mpirun import ROOT, SCRIPTS, environment

SCRIPT = SCRIPTS / "elastic_ranks.py"
PATIENCE = 120.0


class Growing:
    """A job of many short batches; a context manager.

    Args:
        folder: of its files.
        slots: of this host, at first.
        batches: how many.
        flags: more words for the launcher.
        program: its script, and words that follow. Defaults to `elastic_ranks.py`.
        seconds: of a batch. Defaults to 0.1.
        env: more variables.
    """

    def __init__(
        self,
        folder: Path,
        slots: int,
        batches: int,
        *flags: str,
        program: tuple[Path | str, ...] = (SCRIPT,),
        seconds: float = 0.1,
        **env: str,
    ) -> None:
        self.folder, self.script = folder, program[0]
        self.show(slots)
        words = ["--no-mpi", "--host-discovery-script", f"cat {folder / 'hosts'} | tee -a {folder / 'shown'}", *flags]
        words += ["--commit-dir", str(folder / "commits"), sys.executable, str(self.script)]
        words += [str(folder), str(batches), str(seconds), *map(str, program[1:])]
        self._output = open(folder / "output", "wb")  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, "-m", "smddp_tf.run", *words],
            cwd=ROOT, env=environment(env), stdin=subprocess.DEVNULL, stdout=self._output, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip

    def __enter__(self) -> Growing:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self._output.close()

    def show(self, slots: int) -> None:
        """From now on the script names this host with so many slots."""
        new = self.folder / "hosts.new"
        new.write_text(f"localhost:{slots}\n")
        new.rename(self.folder / "hosts")

    def await_shown(self, slots: int) -> None:
        """Shows so many until the launcher has acted on them: it asks again when it has the answer before."""
        shown = self.folder / "shown"
        before = len(shown.read_text().splitlines())
        self.show(slots)
        # The first answer may be one that was given before.
        self.await_that(lambda: shown.read_text().splitlines()[before + 1 :].count(f"localhost:{slots}") >= 2)

    def begun(self) -> dict[int, list[list[int]]]:
        """What each process has begun, by its number in the system: batch, rank, ranks, and what its callbacks saw."""
        found: dict[int, list[list[int]]] = {}
        for log in self.folder.glob("log.*"):
            lines = [line.split() for line in log.read_text().splitlines() if line.startswith("begin ")]
            found[int(log.suffix[1:])] = [[int(line[i]) for i in (1, 2, 3, 5)] for line in lines]
        return found

    def ranks(self) -> dict[int, int]:
        """The process of each rank that trains in the last round."""
        last = {pid: rounds[-1] for pid, rounds in self.begun().items() if rounds and self._lives(pid)}
        return {rank: pid for pid, (_, rank, _, _) in last.items()}

    def await_ranks(self, wanted: int, apart_from: int = 0) -> dict[int, int]:
        """Waits until so many train together, without that process; returns the process of each rank."""

        def train() -> bool:
            rounds = [
                rounds[-1] for pid, rounds in self.begun().items() if rounds and self._lives(pid) and pid != apart_from
            ]
            return len(rounds) == wanted and all(size == seen == wanted for _, _, size, seen in rounds)

        self.await_that(train)
        return self.ranks()

    def await_that(self, holds: Callable[[], bool]) -> None:
        give_up_at = time.monotonic() + PATIENCE
        while not holds():
            assert self.process.poll() is None, f"it has ended\n{self.output()}"
            assert time.monotonic() < give_up_at, f"{self.begun()}\n{self.output()}"
            time.sleep(0.02)

    def output(self) -> str:
        return (self.folder / "output").read_text(errors="replace")

    def check(self, ranks: int) -> None:
        """It ends soon, and well, with the weights of an undisturbed job on all of the last ranks."""
        assert [line[1:] for line in self.ends()] == [[str(ranks), "equal"]] * ranks, self.output()

    def ends(self) -> list[list[str]]:
        """Waits for the end, which is a good one, and returns what the ranks have noted there."""
        (self.folder / "hurry").touch()
        assert self.process.wait(PATIENCE) == 0, self.output()
        lines = [line.split() for log in self.folder.glob("log.*") for line in log.read_text().splitlines()]
        return [words[1:] for words in lines if words[0] == "end"]

    def _lives(self, pid: int) -> bool:
        try:
            return f"{self.script}".encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return False
