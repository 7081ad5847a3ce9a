"""Lets `make docs` show the examples of docstrings as code: a Griffe extension for mkdocs.yml.

The docstrings have doctest's form, `>>> line` and `... line`, which Python's `help` and doctest read. In Markdown `>>>`
are nested quotations.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"(?:^>>> .*\n(?:^(?!>>> )\S.*\n)*)+", re.MULTILINE)


class CodeExamples(griffe.Extension):  # type: ignore[misc, name-defined]
    """Puts each example into a fenced block."""

    def on_instance(self, *, obj: Any, **_: Any) -> None:
        """Called for every module, class, function and attribute."""
        if obj.docstring is not None:
            obj.docstring.value = with_blocks(obj.docstring.value)


def with_blocks(text: str) -> str:
    """The text with its examples as blocks of Python: code as it is typed, results as comments."""
    return _EXAMPLE.sub(lambda found: f"```python\n{_code_of(found[0])}\n```\n", text + "\n").rstrip("\n")


def _code_of(example: str) -> str:
    lines = example.rstrip("\n").split("\n")
    return "\n".join(line[4:] if line[:3] in (">>>", "...") else f"# {line}" for line in lines)
