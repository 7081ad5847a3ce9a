"""docs/errors.md has every error: what `Status` and `raise` say in the sources is looked up there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "errors.md"

# Kinds of messages that the page describes all at once, by words that each of them has.
KINDS = {
    "Received: ": "a wrong argument, which says what was expected and what came",
    "Do all ranks run the same version of smddp_tf?": "bytes from another rank that make no sense",
    " has no attribute ": "Python's own AttributeError",
    " must define ": "a class without a method",
}
# These speak to whoever starts a job, installs aliases or looks at a recording, at once and in full sentences; nothing
# runs then.
NOTHING_RUNS = (
    "smddp_tf/run/", "smddp_tf/link/", "smddp_tf/aliases/", "smddp_tf/insight/", "smddp_tf/ray/", "smddp_tf/spark.py",
)  # fmt: skip
# What the page has by other words, and what only tests can see. Words of each.
INTERNAL = (
    " Given up after SMDDP_STALL_ERROR_SECONDS.",  # after "... has waited for ... s"
    ". Every rank must make the same call with the same arguments.",  # "Mismatched ", whatever
    "The session has ended.",
    "it has ended its connection",  # of a rank that has left in order, which is no error
)
SHORTEST = 9  # fragments below it are in every sentence


def documented() -> list[str]:
    """The fixed parts of everything in backticks."""
    spans = re.findall(r"(`+)(.+?)\1", PAGE.read_text(encoding="utf-8"))
    parts = [part.strip() for _, span in spans for part in span.split("...")]
    return [part for part in parts if len(part) >= SHORTEST]


def argument_text(text: str, start: int) -> str:
    """From the bracket at `start` to the one that closes it; brackets in string literals do not count."""
    depth, at = 0, start
    for match in re.finditer(r'"(?:[^"\\]|\\.)*"|[()]', text[start:]):
        depth += {"(": 1, ")": -1}.get(match[0], 0)
        at = start + match.end()
        if depth == 0:
            break
    return text[start:at]


def native_messages() -> Iterator[tuple[str, list[str]]]:
    """Where, and the literals of each message."""
    for path in sorted((ROOT / "tf_ops").rglob("*")):
        if path.suffix in (".cc", ".h"):
            text = re.sub(r"//[^\n]*", "", path.read_text(encoding="utf-8"))
            text = re.sub(r'"\s*"', "", text)  # literals that continue each other
            for match in re.finditer(r"\bStatus\(\s*(?:Reason::k\w+|reason\b)", text):
                call = argument_text(text, match.start() + len("Status"))
                yield path.relative_to(ROOT).as_posix(), re.findall(r'"((?:[^"\\]|\\.)*)"', call)


def python_messages() -> Iterator[tuple[str, list[str]]]:
    for path in sorted((ROOT / "smddp_tf").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
                constants = [each.value for each in ast.walk(node.exc) if isinstance(each, ast.Constant)]
                where = f"{path.relative_to(ROOT).as_posix()}:{node.lineno}"
                yield where, [text for text in constants if isinstance(text, str)]


def is_listed(where: str, literals: list[str], parts: list[str]) -> bool:
    text = "\n".join(literals)
    if where.startswith(NOTHING_RUNS) or not any(len(literal) >= SHORTEST for literal in literals):
        return True  # the latter only hand on what was made elsewhere
    return any(words in text for words in (*KINDS, *INTERNAL, *parts))


def test_every_message_is_listed() -> None:
    parts = documented()
    messages = [*native_messages(), *python_messages()]
    assert len(messages) > 200
    missing = [f"{where}: {literals}" for where, literals in messages if not is_listed(where, literals, parts)]
    assert not missing, "Messages that docs/errors.md does not have:\n" + "\n".join(missing)


def test_a_new_message_would_be_missed() -> None:
    assert not is_listed("tf_ops/runtime/new.cc", ["A rank has ", " apples too many"], documented())


def test_what_is_internal_exists() -> None:
    texts = ["\n".join(literals) for _, literals in [*native_messages(), *python_messages()]]
    assert not [words for words in (*INTERNAL, *KINDS) if not any(words in text for text in texts)]
