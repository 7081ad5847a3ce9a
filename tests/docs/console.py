"""What is wrong with a command of a document, found without running it.

A line of a shell is cut into its simple commands. The real parser reads the arguments of `smddprun`; modules and
scripts of this repository must exist and have the options in their source; targets of make must exist.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import click

from smddp_tf import aliases
from smddp_tf.run.cli import smddprun

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted(ROOT.glob("*/README.md")),
]
_BLOCK = re.compile(r"^ *```console\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
_BETWEEN = {"&&", "||", ";", "|", "&"}
_VARIABLE = re.compile(r"([A-Z][A-Z0-9_]*)=")
_LAUNCHERS = {"mpirun", "mpiexec", "srun"}
_READERS = {"train.py", "my_script.py"}  # scripts of the reader's own
# Programs that are not ours: they are not looked at.
_OTHERS = {
    "cd", "cp", "docker", "eb", "export", "git", "kubectl", "ls", "mkdir", "pip", "rattler-build", "salloc", "sbatch",
    "scp", "source", "spack", "ssh", "tar", "tensorboard", "tests/smddp_native_tests", "torchrun",
}  # fmt: skip


class Shown(NamedTuple):
    """A command of a document, and what the document shows of its output."""

    page: str
    line: int
    text: str
    output: list[str]


def commands_of(page: Path) -> Iterator[Shown]:
    """Yields the commands of the page's console blocks."""
    text = page.read_text(encoding="utf-8")
    for block in _BLOCK.finditer(text):
        first = text[: block.start()].count("\n") + 2
        lines = block[1].splitlines()
        starts = [number for number, line in enumerate(lines) if line.lstrip().startswith("$ ")]
        for start, end in zip(starts, [*starts[1:], len(lines)]):
            last = start
            while lines[last].endswith("\\"):
                last += 1
            command = " ".join(line.strip().removesuffix("\\") for line in lines[start : last + 1]).removeprefix("$ ")
            yield Shown(str(page.relative_to(ROOT)), first + start, command, lines[last + 1 : end])


def problem_of(line: str) -> str:
    """Says what is wrong with a line of a shell; "" where nothing is known to be."""
    return next(filter(None, map(_problem, _simple_commands(line))), "")


def _simple_commands(line: str) -> Iterator[list[str]]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] = []
    for word in [*lexer, ";"]:
        if word not in _BETWEEN:
            words.append(word)
        elif words:
            yield words
            words = []


def _problem(words: list[str]) -> str:
    while words and (named := _VARIABLE.match(words[0])):
        if problem := _unknown_variable(named[1]):
            return problem
        words = words[1:]
    program, *arguments = [*words, ""][: max(len(words), 1)]
    if program == "smddprun":
        return _of_smddprun(arguments)
    if program in _LAUNCHERS:
        begin = next((place for place, word in enumerate(arguments) if _is_program(word)), None)
        return f"{program} starts nothing that is known" if begin is None else _problem(arguments[begin:])
    if re.fullmatch(r"(.*/)?python3?", program):
        return _of_python(arguments)
    if program == "make":
        return _of_make(arguments)
    if program.endswith(".py"):
        return _of_script(program, arguments)
    return "" if program in _OTHERS or not program else f"{program} is no program that is known here"


def _is_program(word: str) -> bool:
    return word.endswith(".py") or re.fullmatch(r"(.*/)?python3?", word) is not None


def _unknown_variable(name: str) -> str:
    is_ours = name.startswith(("SMDDP_", "HOROVOD_"))
    return f"there is no variable {name}" if is_ours and not re.search(rf"\b{name}\b", _variables()) else ""


@cache
def _variables() -> str:
    return "\n".join(
        (ROOT / path).read_text(encoding="utf-8") for path in ("docs/environment.md", "tf_ops/core/env/env.cc")
    )


def _of_smddprun(arguments: list[str]) -> str:
    try:
        given = smddprun.make_context("smddprun", list(arguments)).params
    except click.exceptions.Exit:  # --help
        return ""
    except click.ClickException as error:
        return error.format_message()
    exported = [_unknown_variable(each.partition("=")[0]) for each in given["exported"]]
    command = list(given["command"])
    if given["module"] and command:
        command = ["python", "-m", *command]
    return next(filter(None, exported), "") or (_problem(command) if command else "")


def _of_python(arguments: list[str]) -> str:
    while arguments and arguments[0] in ("-u", "-X", "-O"):
        arguments = arguments[2 if arguments[0] == "-X" else 1 :]
    if not arguments:
        return ""
    first, *rest = arguments
    if first == "-c":
        return _problem_of_code(rest[0])
    return _of_module(rest[0], rest[1:]) if first == "-m" else _of_script(first, rest)


def _problem_of_code(code: str) -> str:
    try:
        ast.parse(code)
    except SyntaxError as error:
        return str(error)
    return ""


def _of_module(module: str, arguments: list[str]) -> str:
    if module == "smddp_tf.run":
        return _of_smddprun(arguments)
    if module == "smddp_tf.aliases":
        known = aliases.FAMILIES
        is_known = arguments[:1] and arguments[0] in known
        return _of_python(arguments[1:]) if is_known else f"{module} knows {known}, not {arguments[:1]}"
    if module.partition(".")[0] not in ("smddp_tf", "benchmarks", "tests", "tools", "examples"):
        return ""
    found = importlib.util.find_spec(module)
    if found is None or found.origin is None:
        return f"there is no module {module}"
    main = Path(found.origin).with_name("__main__.py") if found.submodule_search_locations else Path(found.origin)
    return _unknown_words(main, arguments) if main.is_file() else f"{module} is no program"


def _of_script(script: str, arguments: list[str]) -> str:
    if script in _READERS:
        return ""
    path = ROOT / script
    return _unknown_words(path, arguments) if path.is_file() else f"there is no {script}"


def _unknown_words(source: Path, arguments: list[str]) -> str:
    """The option that the program does not have, by its source and that of what it imports from beside it."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in source.parent.glob("*.py"))
    missing = [word for word in arguments if word.startswith("--") and f'"{word.partition("=")[0]}"' not in text]
    return f"{source.relative_to(ROOT)} has no option {missing[0]}" if missing else ""


def _of_make(arguments: list[str]) -> str:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = [word for word in arguments if "=" not in word and not word.startswith("-")]
    missing = [target for target in targets if not re.search(rf"^{re.escape(target)}:", makefile, re.MULTILINE)]
    return f"make has no target {missing[0]}" if missing else ""
