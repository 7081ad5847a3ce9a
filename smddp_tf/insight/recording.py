"""A recording as tables. `smddp_tf/monitor/files.py` has the files and their fields."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smddp_tf.monitor import files

Numbers = NDArray[np.float64]
Table = dict[str, Numbers]  # a column for each field; several values of a field in one line are a second dimension
WARM_UP = 3  # steps: tracing, the first order of the gradients


class NoRecording(ValueError):
    """The folder holds nothing that `smddprun --monitor` has written."""


class NotSeen(Exception):
    """Raised where this recording cannot answer a rule. Says why."""


@dataclass(frozen=True)
class Recording:
    """The recordings of all ranks. Times are seconds of rank 0's clock; unknown values are NaN."""

    facts: dict[int, files.RankFacts]
    steps: dict[int, Table]
    processes: dict[int, Table]
    hosts: dict[str, Table]

    @property
    def size(self) -> int:
        """Ranks of the job, recorded or not."""
        return max(facts["size"] for facts in self.facts.values())

    @cached_property
    def aligned(self) -> Table:
        """Steps that every rank has recorded, without the first ones: `step`, and a row for each rank of the rest.

        `own` is what a rank takes without waiting for gradients, `computation` that without waiting for input.
        """
        tables = [self.steps[rank] for rank in self.ranks]
        common = functools.reduce(np.intersect1d, [table["step"][WARM_UP:] for table in tables] or [np.empty(0)])
        rows = [(table, np.searchsorted(table["step"], common)) for table in tables]
        table_of_steps = {
            name: np.array([table[name][at] for table, at in rows]).reshape(len(rows), len(common))
            for name in files.Step.__annotations__
        }
        table_of_steps["own"] = table_of_steps["seconds"] - table_of_steps["exposed"]
        table_of_steps["computation"] = table_of_steps["own"] - table_of_steps["input"]
        return table_of_steps | {"step": common}

    @cached_property
    def communication(self) -> tuple[float, float]:
        """Of the time of reducing, and of that of the steps: the share that no computation hides, from 0 to 1.

        In each step that of the rank that waits least: the others also wait for the late one. Steps of more than five
        times the median are left out.
        """
        steps = self.aligned
        least = np.argmin(steps["exposed"], axis=0)[None] if self.ranks else np.empty((1, 0), int)
        exposed, reducing, seconds = (
            np.take_along_axis(steps[name], least, axis=0)[0] for name in ("exposed", "reducing", "seconds")
        )
        usual = seconds <= 5 * np.median(seconds) if seconds.size else seconds > 0
        if not reducing[usual].any():
            raise NotSeen("no gradients were reduced")
        hidden_not = float(exposed[usual].sum())
        return hidden_not / float(reducing[usual].sum()), hidden_not / float(seconds[usual].sum())

    @property
    def ranks(self) -> list[int]:
        """The ranks that have recorded steps, in the order of the rows of `aligned`."""
        return [rank for rank, table in self.steps.items() if table["step"].size]

    @cached_property
    def groups(self) -> dict[str, list[int]]:
        """Rows of `aligned` whose ranks have the same hardware: by host, or all where a host has one rank only."""
        by_host: dict[str, list[int]] = {}
        for row, rank in enumerate(self.ranks):
            by_host.setdefault(self.facts[rank]["host"], []).append(row)
        alone = len(by_host) > 1 and min(map(len, by_host.values())) == 1
        return {"": list(range(len(self.ranks)))} if alone else by_host

    def on(self, host: str) -> list[int]:
        """The ranks on a host."""
        return [rank for rank, facts in self.facts.items() if facts["host"] == host]

    def cpu_of(self, rank: int, steps: slice = slice(None)) -> float:
        """Returns the CPU use of a rank and its child processes in these steps of `aligned`, in percent of one core."""
        samples = self.while_training(self.processes[rank], steps)
        return float(np.median(samples["cpu"] + samples["children_cpu"])) if samples["time"].size else 0.0

    @cached_property
    def hosts_while_training(self) -> dict[str, Table]:
        """The tables of the hosts during training: `while_training` of each."""
        return {host: self.while_training(table) for host, table in self.hosts.items()}

    def while_training(self, table: Table, steps: slice = slice(None)) -> Table:
        """Returns the rows of `table` between the ends of the first and the last of these steps; all without steps."""
        times = self.aligned["time"][:, steps]
        if not times.size:
            return table
        inside = (table["time"] >= times[:, 0].min()) & (table["time"] <= times[:, -1].max())
        return {name: column[inside] for name, column in table.items()}


def load(folder: str | Path) -> Recording:
    """Reads a folder, also one that a job has not finished.

    Raises:
        NoRecording: there is no rank's file in it.
    """
    folder = Path(folder)
    facts = {found["rank"]: found for file in sorted(folder.glob("rank-*.json")) for found in _facts(file)}
    if not facts:
        raise NoRecording(f"{folder} holds no recording. Record a job with: smddprun --monitor {folder} ...")
    clocks = {rank: found["clock"] or 0.0 for rank, found in facts.items()}
    firsts = {found["host"]: clocks[rank] for rank, found in facts.items() if found["local_rank"] == 0}
    for rank, clock in clocks.items():
        own: dict[str, Any] = {**facts[rank]}
        moved = {name: own[name] and own[name] - clock for name in ("started", "first_step", "ended")}
        facts[rank].update(moved)  # type: ignore[typeddict-item]
    return Recording(
        facts,
        {rank: _counted_once(_table(files.steps_file(folder, rank), files.Step, clocks[rank])) for rank in facts},
        {rank: _table(files.process_file(folder, rank), files.ProcessSample, clocks[rank]) for rank in facts},
        {host: _table(files.host_file(folder, host), files.HostSample, clock) for host, clock in firsts.items()},
    )


def _facts(file: Path) -> Iterator[files.RankFacts]:
    with contextlib.suppress(ValueError, KeyError, TypeError):  # not one of our files
        found = json.loads(file.read_bytes())
        if found["format"] == files.FORMAT and files.RankFacts.__annotations__.keys() <= found.keys():
            yield found


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    for each in (file.with_name(f"{file.name}.1"), file):
        for line in each.read_bytes().splitlines() if each.exists() else ():
            with contextlib.suppress(ValueError):  # the last line of a process that was killed
                found = json.loads(line)
                if isinstance(found, dict):
                    yield found


def _table(file: Path, fields: type, clock: float) -> Table:
    lines, table = list(_lines(file)), {}
    for name, kind in fields.__annotations__.items():
        values = [line.get(name) for line in lines]
        if "list" in str(kind):
            width = max((len(each or ()) for each in values), default=0)
            values = [(list(each or ()) + [None] * width)[:width] for each in values]
            table[name] = np.array(values, float).reshape(len(lines), width)
        else:
            table[name] = np.array(values, float)
    table["time"] -= clock
    return table


def _counted_once(steps: Table) -> Table:
    """By number; of steps that were made again after a failure, the last time."""
    last = {number: at for at, number in enumerate(steps["step"]) if number >= 0}
    order = [last[number] for number in sorted(last)]
    return {name: column[order] for name, column in steps.items()}
