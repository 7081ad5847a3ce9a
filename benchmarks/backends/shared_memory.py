"""The mark (our plain C program) and the bound: what memory alone would allow."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from benchmarks.backends import Prepared
from benchmarks.cases import Case, input_values, wrong_elements
from benchmarks.reference import CHUNK_BYTES, Group

__all__ = ["OnePass", "Reference"]


class Reference:
    """The allreduce of `benchmarks/reference`."""

    def __init__(self, rank: int, ranks: int) -> None:
        self._rank, self._ranks = rank, ranks
        self._group = Group(os.environ["SMDDP_BENCH_REFERENCE"], rank, ranks)

    def about(self) -> dict[str, Any]:
        return {"chunk_bytes": CHUNK_BYTES}

    def prepare(self, case: Case) -> Prepared:
        array = input_values(self._rank, (case.bytes // 4,))
        self._group.allreduce(array)
        wrong = wrong_elements(array, self._ranks)
        array.fill(0)
        return Prepared(lambda: self._group.allreduce(array), wrong)

    def close(self) -> None:
        """Nothing to end."""


class OnePass:
    """Every rank reads and writes its array once, all at the same time: no allreduce in place can do with less."""

    def __init__(self, rank: int, ranks: int) -> None:
        self._rank = rank

    def about(self) -> dict[str, Any]:
        return {}

    def prepare(self, case: Case) -> Prepared:
        array = input_values(self._rank, (case.bytes // 4,))
        return Prepared(lambda: np.negative(array, out=array), 0)

    def close(self) -> None:
        """Nothing to end."""
