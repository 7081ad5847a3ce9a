"""How each candidate reduces. A backend runs in a worker, in the environment of its library; none knows the others."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from benchmarks.cases import Case

__all__ = ["BACKENDS", "Backend", "Prepared", "open_backend"]


@dataclass
class Prepared:
    """A case that is ready to be timed.

    Attributes:
        run: reduces once.
        wrong: elements that differed from the exact result when it was checked, on this rank.
    """

    run: Callable[[], Any]
    wrong: int


class Backend(Protocol):
    """One rank of a candidate."""

    def about(self) -> dict[str, Any]:
        """Versions, for the results file."""

    def prepare(self, case: Case) -> Prepared:
        """Checks the result and returns what to time. All ranks call it together."""

    def close(self) -> None:
        """Ends the library. All ranks call it together."""


# name -> "module:class"; imported in the worker only.
BACKENDS = {
    "smddp": "benchmarks.backends.smddp:Smddp",
    "mpi": "benchmarks.backends.mpi:Mpi",
    "gloo": "benchmarks.backends.gloo:Gloo",
    "oneccl": "benchmarks.backends.oneccl:OneCcl",
    "horovod": "benchmarks.backends.horovod:Horovod",
    "reference": "benchmarks.backends.shared_memory:Reference",
    "bound": "benchmarks.backends.shared_memory:OnePass",
}


def open_backend(name: str, rank: int, ranks: int) -> Backend:
    """Starts the library of backend `name` as one of `ranks`."""
    module, _, kind = BACKENDS[name].partition(":")
    return getattr(importlib.import_module(module), kind)(rank, ranks)
