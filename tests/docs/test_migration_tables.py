"""The migration tables have no empty cell, and what they call the same or better is there, under its foreign name."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from smddp_tf import aliases

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = ("migrate-from-horovod.md", "migrate-from-smddp.md")
MODULE = re.compile(r"(horovod|smdistributed|smddpcommon|herringcommon)(\.\w+)*")


class Row(NamedTuple):
    heading: str
    name: str
    here: str
    note: str


def rows_of(page: str) -> list[Row]:
    rows, heading = [], ""
    for line in (DOCS / page).read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            heading = line[3:].strip()
        elif line.startswith("|") and not line.startswith(("| name |", "| behaviour ", "|---")):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            assert len(cells) == 3, f"{page}: {line}"
            rows.append(Row(heading, *cells))
    return rows


def names() -> Iterator[tuple[str, str]]:
    """Module and name of everything that the tables call the same or better."""
    for page in PAGES:
        for row in rows_of(page):
            if MODULE.fullmatch(row.heading) and row.here != "not here":
                for name in re.findall(r"`([^`]+)`", row.name):
                    yield row.heading, name


@pytest.mark.parametrize("page", PAGES)
def test_no_cell_is_empty(page: str) -> None:
    rows = rows_of(page)
    assert len(rows) > 25
    for row in rows:
        assert all(row), row
        assert row.here in ("same", "better", "not here"), row


def test_what_is_not_here_is_not(aliased: None) -> None:
    """A name that has come since must not be called missing."""
    for page in PAGES:
        for row in rows_of(page):
            if MODULE.fullmatch(row.heading) and row.here == "not here" and not row.note.startswith("can be imported"):
                for name in re.findall(r"`(\w+)`", row.name):
                    assert not exists(row.heading, name), row


@pytest.fixture
def aliased() -> Iterator[None]:
    for family in aliases.FAMILIES:
        aliases.install(family)
    yield
    for family in aliases.FAMILIES:
        aliases.uninstall(family)


def test_the_names_exist(aliased: None) -> None:
    missing = [f"{module}: {name}" for module, name in names() if not exists(module, name)]
    assert not missing, "The tables name what is not there:\n" + "\n".join(missing)


def exists(module: str, name: str) -> bool:
    """Is there the attribute, and has it the arguments that stand in parentheses?"""
    plain, _, arguments = name.partition("(")
    if plain == "torch.torch_smddp":  # it needs PyTorch: tests/torch_backend/of_smddp.py
        return importlib.util.find_spec(f"{module}.{plain}") is not None
    try:
        found: Any = functools.reduce(getattr, plain.split("."), importlib.import_module(module))
    except (AttributeError, ImportError):
        return False
    wanted = [argument.strip(" =") for argument in arguments.rstrip(")").split(",") if argument]
    parameters = inspect.signature(found.__init__ if inspect.isclass(found) else found).parameters if wanted else {}
    return all(argument in parameters for argument in wanted)
