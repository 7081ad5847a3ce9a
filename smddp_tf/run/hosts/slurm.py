"""Slurm's allocation as hosts: what `salloc` and `sbatch` leave in the environment."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping

from smddp_tf.exceptions import LaunchError
from smddp_tf.run.hosts.hosts import Host

_NODES = ("SLURM_JOB_NODELIST", "SLURM_NODELIST")


def inside_allocation(environment: Mapping[str, str]) -> bool:
    """True where Slurm has given nodes: in the shell of `salloc`, in the script of `sbatch`, in a step of `srun`."""
    return any(environment.get(name) for name in _NODES)


def allocated_hosts(environment: Mapping[str, str]) -> list[Host]:
    """The allocation's nodes with the tasks that each may run.

    Tasks come from SLURM_TASKS_PER_NODE, else SLURM_NTASKS_PER_NODE, else SLURM_NTASKS dealt out evenly, else 1.

    Raises:
        LaunchError: a variable has an invalid value, or they contradict each other.
    """
    text = next(environment[name] for name in _NODES if environment.get(name))
    nodes = expand_nodelist(text)
    counts = _tasks_of_nodes(environment, len(nodes))
    if len(counts) != len(nodes):
        raise LaunchError(
            f"SLURM_TASKS_PER_NODE={environment.get('SLURM_TASKS_PER_NODE')!r} speaks of {len(counts)} nodes, "
            f"SLURM_JOB_NODELIST={text!r} of {len(nodes)}. Give the hosts yourself: -H host:slots,..."
        )
    return [Host(node, count) for node, count in zip(nodes, counts)]


def _tasks_of_nodes(environment: Mapping[str, str], nodes: int) -> list[int]:
    if per_node := environment.get("SLURM_TASKS_PER_NODE"):
        return expand_counts(per_node)
    if per_node := environment.get("SLURM_NTASKS_PER_NODE"):
        return expand_counts(per_node) * nodes
    tasks = max(nodes, int(environment.get("SLURM_NTASKS") or nodes))
    return [tasks // nodes + (node < tasks % nodes) for node in range(nodes)]


def expand_counts(text: str) -> list[int]:
    """`[2, 2, 2, 1]` of `2(x3),1`."""
    counts: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:\(x(\d+)\))?\s*", part)
        if not match:
            raise LaunchError(f"Expected Slurm's form of counts, such as 2(x3),1. Received: {text!r}.")
        counts += [int(match[1])] * int(match[2] or 1)
    return counts


def expand_nodelist(text: str) -> list[str]:
    """`[n01, n02, n03, n7, gpu]` of `n[01-03,7],gpu`. Several brackets in a name multiply; numbers keep their zeros.

    Raises:
        LaunchError: brackets do not match, or a range runs backwards.
    """
    names: list[str] = []
    for part in re.split(r",(?![^\[]*\])", text):  # at commas outside of brackets
        pieces = re.split(r"\[([\d,\s-]*)\]", part.strip())  # every second one is the inside of brackets
        if any(re.search(r"[\[\]]", piece) for piece in pieces):
            raise _unreadable(text)
        choices = [_numbers(piece, text) if index % 2 else [piece] for index, piece in enumerate(pieces)]
        names += filter(None, map("".join, itertools.product(*choices)))
    if not names:
        raise LaunchError(f"Expected Slurm's list of nodes. Received: {text!r}, which names none.")
    return names


def _numbers(text: str, whole: str) -> list[str]:
    numbers: list[str] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip())
        first, last = (match[1], match[2] or match[1]) if match else ("1", "0")
        if int(last) < int(first):
            raise _unreadable(whole)
        numbers += [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
    return numbers


def _unreadable(text: str) -> LaunchError:
    return LaunchError(f"Expected Slurm's form of node names, such as n[01-03,7]. Received: {text!r}.")
