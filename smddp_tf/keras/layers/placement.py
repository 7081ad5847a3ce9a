"""Assigns the rows and columns of a table to ranks: arithmetic only, the same on all ranks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

PLACEMENTS = ("auto", "sparsecore", "default_device", "table_wise", "row_wise", "column_wise")
# "auto": up to so many bytes every rank has the full table; its gradient costs less than an exchange of ids and rows.
_REPLICATED_BYTES = 64 << 10


class Layout(NamedTuple):
    """The distribution of one table over the ranks.

    Row `i` of a row-wise table is row `i // ranks` of rank `i % ranks`: frequent ids often have low numbers, and are
    distributed over all ranks in this way. Columns are divided consecutively; the first ranks may have one more.

    Attributes:
        rows: number of rows of the full table.
        columns: number of columns of the full table.
        placement: one of `PLACEMENTS`; `with_placements` leaves no "auto" and no "sparsecore".
        ranks: number of ranks that share the table.
        owner: the rank that has a table-wise table.
    """

    rows: int
    columns: int
    placement: str
    ranks: int
    owner: int = 0

    @property
    def is_sharded(self) -> bool:
        """False where every rank has the full table."""
        return self.ranks > 1 and self.placement != "default_device"

    def part(self, rank: int) -> tuple[slice, slice]:
        """Returns the shard of `rank`, as an index into the full table."""
        rows, columns = slice(0, self.rows), slice(0, self.columns)
        if self.is_sharded and self.placement == "row_wise":
            rows = slice(rank, self.rows, self.ranks)
        elif self.is_sharded and self.placement == "column_wise":
            each, more = divmod(self.columns, self.ranks)
            columns = slice(rank * each + min(rank, more), (rank + 1) * each + min(rank + 1, more))
        elif self.is_sharded and rank != self.owner:
            rows = slice(0, 0)
        return rows, columns

    def shape(self, rank: int) -> tuple[int, int]:
        """Returns the shape of the shard of `rank`."""
        rows, columns = self.part(rank)
        return len(range(*rows.indices(self.rows))), len(range(*columns.indices(self.columns)))

    @property
    def full_shape(self) -> tuple[int, int]:
        """The shape of the full table."""
        return self.rows, self.columns

    def count(self, rank: int) -> int:
        """Returns the number of elements that `rank` sends where a file is written."""
        return math.prod(self.shape(rank))

    def flat(self, value: Any, rank: int) -> Any:
        """Returns the elements of the shard of `rank`, from a tensor of shape `held`."""
        rows, columns = self.shape(rank)
        return value[:rows, :columns]

    def put(self, table: np.ndarray, rank: int, elements: np.ndarray) -> None:
        """Writes the elements that `rank` has sent into the array `table`."""
        table[self.part(rank)] = elements.reshape(self.shape(rank))

    def shard(self, table: Any, rank: int) -> Any:
        """Returns the shard of `rank`, from an array or a dataset of h5py."""
        if self.count(rank) == 0:
            return np.zeros(self.held(rank), table.dtype)
        rows, columns = self.part(rank)
        return table[rows, columns] if rows.step is None else table[:][rows]  # steps are slow in HDF5

    def held(self, rank: int) -> tuple[int, int]:
        """Returns the shape of the variable of `rank`: at least (1, 1), because Keras cannot add empty tensors."""
        rows, columns = self.shape(rank)
        return max(rows, 1), max(columns, 1)


def with_placements(tables: Sequence[Layout], itemsize: int = 4) -> list[Layout]:
    """Decides how each table is distributed.

    A small table of "auto" is on every rank. One of more than a quarter of a rank's equal share is sharded by rows.
    The others, and table-wise ones, are each assigned in full to the rank that has least of them, the largest first.

    Args:
        tables: the requested layouts, all with the same number of ranks.
        itemsize: bytes of an element.

    Returns:
        The layouts, in the order of `tables`, without "auto" and "sparsecore".
    """
    sizes = [table.rows * table.columns * itemsize for table in tables]
    automatic = [table.placement in ("auto", "sparsecore") for table in tables]
    small = [is_automatic and size <= _REPLICATED_BYTES for size, is_automatic in zip(sizes, automatic)]
    apart = (size for table, size, few in zip(tables, sizes, small) if not few and table.placement != "default_device")
    quarter = sum(apart) / tables[0].ranks / 4
    placed, held = list(tables), [0] * tables[0].ranks
    for number in sorted(range(len(tables)), key=lambda number: -sizes[number]):
        choice = tables[number].placement
        if automatic[number]:
            choice = "default_device" if small[number] else "row_wise" if sizes[number] > quarter else "table_wise"
        owner = held.index(min(held)) if choice == "table_wise" else 0
        held[owner] += sizes[number] if choice == "table_wise" else 0
        placed[number] = tables[number]._replace(placement=choice, owner=owner)
    return placed


def described(names: Sequence[str], layouts: Sequence[Layout], itemsize: int = 4) -> str:
    """A table for people: the bytes that each rank holds."""
    ranks = range(layouts[0].ranks)
    bytes_of = [[rows * columns * itemsize for rows, columns in map(layout.shape, ranks)] for layout in layouts]
    lines = [["table", "rows x columns", "placement", *(f"rank {rank}" for rank in ranks)]]
    for name, layout, sizes in zip(names, layouts, bytes_of):
        lines.append([name, f"{layout.rows} x {layout.columns}", layout.placement, *map("{:,}".format, sizes)])
    lines.append(["bytes", "", "", *(f"{sum(sizes):,}" for sizes in zip(*bytes_of))])
    widths = [max(map(len, column)) for column in zip(*lines)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)
