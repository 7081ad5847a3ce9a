"""Hosts of the lab that come and go, beside Elastic Horovod: `python -m benchmarks.elastic [--seconds 600]`.

A job begins on one host. Every 20 s (a sixth of shorter times) the discovery script names a second host, and 20 s later
no more, when the host also vanishes: by turns its ranks are killed, together with what supervises them there, and its
link is cut without a word. Both libraries run `elastic_worker.py`, one after the other: 50 ms a batch, a commit every 3
batches. Their launchers run on a host of their own, for Horovod's gives ranks the loopback device for good where a job
begins on the launcher's host alone. What stands in for ssh enters the hosts beside their links, so a launcher learns
that a process has ended there, or has given up, while its link is cut; over the network Horovod's would not. When a job
goes on, or has not within `--patience`, all processes of the vanished host are killed, and its link is there again.

Reported are

- effective training time: committed batches over those of the same time at the pace before the first host came. A job
  that ends early counts with the whole time;
- seconds from the moment the host is named until all ranks have ended the first batch of a session with it;
- of these, how long rank 0 waits: from its last commit without the host to its first batch with it;
- seconds from the cut, and from the kill, to the first batch of a session of the first host alone;
- whether the weights at the end are those of a job that nothing disturbed.

Of Horovod's options these differ from the defaults, for its sake:

- `--network-interfaces eth0`: it does not look for one, for which it wants two hosts from the start;
- `--blacklist-cooldown-range 1 2`: a host that was lost is used again; by default it never is;
- `--gloo-timeout-seconds` (30 by default): it notices a cut link when that has passed, and then waits until the process
  behind the link has given up, too. It waits only as long for new ranks, which import TensorFlow meanwhile; the job
  ends when they take longer;
- `--elastic-timeout` and `--start-timeout`: longer than any wait here.

smddprun's options and variables are the defaults.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.findings import machine, results_path
from benchmarks.lab import SCRIPT, Lab, LabError, why_not
from benchmarks.peers import ENVIRONMENTS
from benchmarks.report import console_of

__all__ = ["CANDIDATES", "Event", "Row", "effective_ratio", "events_of", "first_batch", "pace", "table"]

BATCH = 0.05  # seconds
RATE = 1000  # Mbit/s
TRAINS, COME_AND_GO, LAUNCHES = 0, (1, 2), 3  # nodes of the lab
LONGEST_PERIOD = 20.0
START_SECONDS = 90.0
END_SECONDS = 180.0  # for the batches that are left
WORKER = "benchmarks.elastic_worker"
HOROVOD = ENVIRONMENTS / "horovod" / "bin"
SSH = """#!/bin/sh
while [ "$1" = -o ]; do shift 2; done
host=$1; shift
exec {script} exec "${{host#node}}" env -i HOME="$HOME" /bin/sh -c "$*"
"""


@dataclass(frozen=True)
class Candidate:
    """A library and its launcher.

    Attributes:
        module: with Horovod's API.
        python: interpreter that has it.
        launcher: its command line; "{hosts}" is the discovery script, "{folder}" for what it wants to keep.
        path: more folders for PATH.
    """

    module: str
    python: Path
    launcher: str
    path: str


def candidates(gloo_timeout: int) -> dict[str, Candidate]:
    """All, by name. `gloo_timeout`: Horovod's, in seconds."""
    waits = f"--elastic-timeout 600 --start-timeout 120 --gloo-timeout-seconds {gloo_timeout}"
    ours = f"{sys.executable} -m smddp_tf.run --no-mpi --commit-dir {{folder}}/commits"
    horovod = f"horovodrun --gloo --network-interfaces eth0 -np 1 --blacklist-cooldown-range 1 2 {waits}"
    both = "--min-np 1 --max-np 2 --host-discovery-script {hosts}"
    system = "/usr/bin:/bin:/usr/sbin:/sbin"
    return {
        "smddp_tf": Candidate(
            "smddp_tf", Path(sys.executable), f"{ours} {both}", f"{Path(sys.executable).parent}:{system}"
        ),
        "Elastic Horovod": Candidate(
            "horovod.tensorflow", HOROVOD / "python", f"{horovod} {both}", f"{HOROVOD}:{system}"
        ),
    }


CANDIDATES = tuple(candidates(0))


@dataclass(frozen=True)
class Event:
    """A line of the worker.

    Attributes:
        at: seconds of the monotonic clock.
        what: "trains" (the first batch of a session), "commit", "right" or "wrong" (the weights at the end).
        batch: batches so far.
        rank: who says so.
        size: ranks of the session.
    """

    at: float
    what: str
    batch: int
    rank: int
    size: int


@dataclass
class Row:
    """What one library did.

    Attributes:
        seconds: how long hosts came and went.
        pace: batches per second before the first host came.
        batches: committed in `seconds`.
        effective: see `effective_ratio`.
        joined: seconds from the naming of a host to a session with it, of each host.
        stalls: see `stalls`; a batch is in it.
        cut: seconds from a cut link to the next session.
        killed: the same from a kill. None: not within the patience.
        weights: "right", "wrong", or "none" where no rank came to the end.
        failure: how the job ended, if it did before it should.
        notes: what happened besides.
    """

    candidate: str
    seconds: float = 0.0
    pace: float = 0.0
    batches: int = 0
    effective: float = 0.0
    joined: list[float | None] = field(default_factory=list)
    stalls: list[float] = field(default_factory=list)
    cut: list[float | None] = field(default_factory=list)
    killed: list[float | None] = field(default_factory=list)
    weights: str = "none"
    failure: str = ""
    notes: list[str] = field(default_factory=list)


class JobEnded(RuntimeError):
    """The job ended before it should."""


def events_of(text: str) -> list[Event]:
    """Reads lines of the worker; one that is not complete is left out."""
    lines = text[: text.rfind("\n") + 1].splitlines()
    return [
        Event(int(at) / 1e9, what, int(batch), int(rank), int(size))
        for at, what, batch, rank, size in map(str.split, lines)
    ]


def pace(events: Sequence[Event], until: float) -> float:
    """Batches per second from the first commit to the last one before that moment. 0: there were less than two."""
    commits = [event for event in events if event.what == "commit" and event.at < until]
    if len(commits) < 2:
        return 0.0
    return (commits[-1].batch - commits[0].batch) / (commits[-1].at - commits[0].at)


def committed(events: Sequence[Event], until: float) -> int:
    """Batches that were committed by that moment."""
    return max((event.batch for event in events if event.what == "commit" and event.at < until), default=0)


def effective_ratio(batches: int, seconds: float, undisturbed: float) -> float:
    """Of that many batches in that time, beside a job at the undisturbed pace."""
    return batches / (undisturbed * seconds) if undisturbed and seconds else 0.0


def first_batch(events: Sequence[Event], size: int, since: float) -> float | None:
    """When the last rank ended the first batch of a session of that size, begun after that moment; None: not yet."""
    starts = [event for event in events if event.what == "trains" and event.at >= since]
    for place, start in enumerate(starts):
        session = [event for event in starts[place:] if (event.size, event.batch) == (size, start.batch)]
        if start.size == size and {event.rank for event in session} == set(range(size)):
            return max(event.at for event in session)
    return None


def stalls(events: Sequence[Event]) -> list[float]:
    """Seconds that rank 0 waited for hosts that came: from its last commit without, to its first batch with one."""
    of_first = [event for event in events if event.rank == 0]
    pairs = zip(of_first, of_first[1:])
    return [after.at - before.at for before, after in pairs if after.what == "trains" and after.size > before.size]


class Job:
    """A job whose ranks write events, and whose hosts a file names."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.output = folder / "output"
        self.ended: Future[tuple[int, str]] = Future()
        self._events: list[Event] = []
        self._bytes_read = 0
        self.name_hosts(TRAINS)

    def name_hosts(self, *nodes: int) -> None:
        """What the discovery script prints from now on."""
        new = self.folder / "hosts.new"
        new.write_text("".join(f"node{node}:1\n" for node in nodes))
        new.rename(self.folder / "hosts")

    def events(self) -> list[Event]:
        """All so far. Only what is new is read, so as not to disturb the job."""
        path = self.folder / "events"
        if path.exists():
            with path.open("rb") as file:
                file.seek(self._bytes_read)
                new = file.read()
            whole = new[: new.rfind(b"\n") + 1]
            self._bytes_read += len(whole)
            self._events += events_of(whole.decode())
        return self._events

    def await_session(self, size: int, since: float, patience: float) -> float | None:
        """Waits until a session of so many ranks, begun after that moment, trains.

        Returns:
            Seconds from `since` to its first batch on all ranks, or None if there was none within `patience`.

        Raises:
            JobEnded: the job ended.
        """
        while time.monotonic() < since + patience:
            if (at := first_batch(self.events(), size, since)) is not None:
                return at - since
            self.check()
            time.sleep(0.1)
        return None

    def check(self) -> None:
        if self.ended.done():
            raise JobEnded(self._how())

    def rest(self, until: float) -> None:
        """Sleeps until that moment. Raises JobEnded if the job ends meanwhile."""
        while (left := until - time.monotonic()) > 0:
            self.check()
            time.sleep(min(left, 0.2))

    def finish(self, row: Row) -> None:
        """Lets the job train its last batches, and waits for its end."""
        (self.folder / "hurry").touch()
        give_up_at = time.monotonic() + END_SECONDS
        while not self.ended.done() and time.monotonic() < give_up_at:
            time.sleep(0.1)
        if not self.ended.done():
            raise JobEnded(f"did not end within {END_SECONDS:.0f} s")
        if self.ended.result()[0] != 0:
            raise JobEnded(self._how())
        ends = {event.what for event in self.events()} & {"right", "wrong"}
        row.weights = "wrong" if "wrong" in ends else ends.pop() if ends else "none"

    def last_words(self) -> str:
        """The last lines of its output."""
        text = self.output.read_text(errors="replace") if self.output.exists() else ""
        return " | ".join(text.splitlines()[-6:])[-600:]

    def _how(self) -> str:
        return f"the job ended with exit code {self.ended.result()[0]}"


def processes_of(node: int, word: str) -> Iterator[int]:
    """Processes on the node with that word in their command line."""
    shown = subprocess.run(["ip", "netns", "pids", f"lab{node}"], capture_output=True, text=True, check=True).stdout
    for process in map(int, shown.split()):
        try:
            if word.encode() in Path(f"/proc/{process}/cmdline").read_bytes():
                yield process
        except OSError:  # it has ended
            continue


def kill(node: int, word: str) -> None:
    for process in list(processes_of(node, word)):
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            continue


def vanish(lab: Lab, job: Job, node: int, silently: bool, patience: float, row: Row) -> None:
    """Takes the host away; waits for the session without it, and then frees the host."""
    how, seconds = ("cut", row.cut) if silently else ("killed", row.killed)
    job.name_hosts(TRAINS)
    since = time.monotonic()
    if silently:
        lab.control("cut", node)
    else:
        kill(node, WORKER)
    try:
        seconds.append(job.await_session(1, since, patience))
    finally:
        kill(node, "python")
        if silently:
            lab.control("heal", node)
    if seconds[-1] is None:
        freed = time.monotonic()
        late = job.await_session(1, freed, patience)
        after = "neither within as long" if late is None else f"but {late:.1f} s"
        row.notes.append(
            f"{how}: no session within {patience:.0f} s, {after} after the last processes there were killed"
        )


def hosts_come_and_go(lab: Lab, job: Job, seconds: float, patience: float, row: Row) -> None:
    """The whole run, into the row."""
    period = min(LONGEST_PERIOD, seconds / 6)
    started = time.monotonic()
    if job.await_session(1, started, START_SECONDS) is None:
        raise JobEnded(f"did not begin within {START_SECONDS:.0f} s")
    begun = time.monotonic()
    at_first = committed(job.events(), begun)
    try:
        job.rest(begun + period)
        row.pace = pace(job.events(), time.monotonic())
        turn = 0
        while time.monotonic() + 2 * period <= begun + seconds:
            node, silently = COME_AND_GO[turn // 2 % 2], turn % 2 == 1
            asked = time.monotonic()
            job.name_hosts(TRAINS, node)
            row.joined.append(job.await_session(2, asked, patience))
            job.rest(asked + period)
            left = time.monotonic()
            if row.joined[-1] is None:
                row.notes.append(f"no session with a host that was named for {left - asked:.0f} s")
            vanish(lab, job, node, silently, patience, row)
            job.rest(left + period)
            turn += 1
        row.seconds = time.monotonic() - begun
    except JobEnded:
        row.notes.append(f"it ended after {time.monotonic() - begun:.0f} s")
        row.seconds = max(seconds, time.monotonic() - begun)
        raise
    finally:
        row.batches = committed(job.events(), time.monotonic()) - at_first
        row.effective = effective_ratio(row.batches, row.seconds, row.pace)
        row.stalls = stalls(job.events())
    job.finish(row)


def measure(name: str, candidate: Candidate, seconds: float, patience: float, keep: Path | None) -> Row:
    """One library in a lab of its own. `keep`: folder for the output of the job."""
    row = Row(name)
    limit = START_SECONDS + seconds + 2 * patience + END_SECONDS + 60
    with (
        tempfile.TemporaryDirectory(prefix="smddp_elastic_bench_") as folder,
        ThreadPoolExecutor(1) as pool,
        Lab(LAUNCHES + 1, RATE, seconds=limit) as lab,
    ):
        job = Job(Path(folder))
        ssh = Path(folder) / "ssh"
        ssh.write_text(SSH.format(script=SCRIPT.resolve()))
        ssh.chmod(0o755)
        launcher = candidate.launcher.format(hosts=shlex.quote(f"cat {folder}/hosts"), folder=folder)
        work = [str(candidate.python), "-m", WORKER, candidate.module, folder, str(int(seconds / BATCH)), str(BATCH)]
        environment = f"PATH={folder}:{candidate.path} LD_LIBRARY_PATH= TF_CPP_MIN_LOG_LEVEL=2"
        words = f"exec env {environment} {launcher} {shlex.join(work)} > {job.output} 2>&1"
        job.ended = pool.submit(lab.execute, LAUNCHES, "sh", "-c", words)
        try:
            hosts_come_and_go(lab, job, seconds, patience, row)
        except JobEnded as error:
            row.failure = str(error)
            row.notes.append(f"its last words: {job.last_words()}")
        finally:
            if keep:
                keep.mkdir(parents=True, exist_ok=True)
                for path in (job.output, Path(folder) / "events"):
                    if path.exists():
                        (keep / f"{candidate.module}.{path.name}").write_bytes(path.read_bytes())
    return row


def _seconds(values: Sequence[float | None], patience: float) -> str:
    found = [value for value in values if value is not None]
    text = f"{statistics.median(found):.2f} ({max(found):.2f})" if found else "-"
    never = len(values) - len(found)
    return text + (f"; {never} of {len(values)} not within {patience:.0f} s" if never else "")


def table(rows: Sequence[Row], patience: float) -> Table:
    """The rows; seconds as median and most."""
    made = Table(title="hosts that come and go: seconds, median (most)")
    columns = (
        "library",
        "effective training time",
        "named -> trains",
        "others wait",
        "cut -> trains",
        "killed -> trains",
    )
    for column in (*columns, "hosts", "weights"):
        made.add_column(column, justify="left" if column in ("library", "weights") else "right")
    for row in rows:
        times = [_seconds(values, patience) for values in (row.joined, row.stalls, row.cut, row.killed)]
        end = f"{row.weights}; {row.failure}" if row.failure else row.weights
        made.add_row(row.candidate, f"{row.effective:.3f} of {row.seconds:.0f} s", *times, str(len(row.joined)), end)
    return made


def show(rows: Sequence[Row], patience: float, console: Console) -> None:
    console.print(table(rows, patience))
    for row in rows:
        for note in row.notes:
            console.print(f"note: {row.candidate}: {note}", markup=False, highlight=False)


def as_json(rows: Sequence[Row], options: argparse.Namespace) -> dict[str, Any]:
    return {
        "when": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "machine": machine(),
        "seconds": options.seconds,
        "patience": options.patience,
        "launchers": {name: one.launcher for name, one in candidates(options.gloo_timeout).items()},
        "rows": [asdict(row) for row in rows],
    }


def measure_all(options: argparse.Namespace, say: Callable[[str], None]) -> list[Row]:
    rows = []
    for name, candidate in candidates(options.gloo_timeout).items():
        if name not in options.candidates:
            continue
        if not candidate.python.exists():
            say(f"{name} is left out: `make bench-horovod` makes its environment")
            continue
        say(f"{name}: about {options.seconds:.0f} s")
        try:
            rows.append(measure(name, candidate, options.seconds, options.patience, options.keep))
        except LabError as error:
            say(f"{name}: {error}")
    return rows


def main() -> None:
    """Measures what is asked for. Skips clearly where there can be no lab."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.elastic", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=600.0, help="how long hosts come and go, for each library")
    parser.add_argument("--patience", type=float, default=60.0, help="seconds to wait for a session")
    parser.add_argument("--gloo-timeout", type=int, default=10, help="Horovod's --gloo-timeout-seconds")
    parser.add_argument("--candidates", nargs="+", choices=CANDIDATES, default=list(CANDIDATES))
    parser.add_argument("--keep", type=Path, help="folder for the jobs' output and events")
    parser.add_argument("--output", type=Path, help="results file")
    options = parser.parse_args()
    console = console_of(width=180)
    if reason := why_not():
        console.print(f"no elastic benchmark: {reason}")
        return
    rows = measure_all(options, console.print)
    path = options.output or results_path("elastic")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(as_json(rows, options), indent=1) + "\n", encoding="utf-8")
    show(rows, options.patience, console)
    console.print(f"written to {path}")


if __name__ == "__main__":
    main()
