"""The commands in the console blocks of README and docs/: options, scripts and targets exist; quick ones are run."""

from __future__ import annotations

import os
import re
import shlex
import sys

import pytest

from tests.docs.console import PAGES, Shown, commands_of, problem_of
from tests.examples.benchmark_output import check_rates
from tests.support.mpirun import launch

pytestmark = pytest.mark.launches

COMMANDS = [command for page in PAGES for command in commands_of(page)]


def test_commands_can_be_typed() -> None:
    wrong = [
        (f"{each.page}:{each.line}", each.text, problem) for each in COMMANDS if (problem := problem_of(each.text))
    ]
    assert not wrong
    assert len(COMMANDS) > 50


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("smddprun -np 2 --monitr recording python train.py", "--monitr"),
        ("smddprun -np two python train.py", "'two' is not a valid integer"),
        ("smddprun -np 2 python examples/trian.py", "there is no examples/trian.py"),
        ("smddprun -np 2 -x SMDDP_BUKET_BYTES=1 train.py", "there is no variable SMDDP_BUKET_BYTES"),
        ("HOROVOD_TIMELIN=/tmp/a mpirun -np 4 python train.py", "there is no variable HOROVOD_TIMELIN"),
        ("cd build && smddprunn -np 2 train.py", "smddprunn is no program"),
        ("mpirun -np 2 python -m smddp_tf.demoo", "there is no module smddp_tf.demoo"),
        ("mpirun -np 2 python -m smddp_tf.aliases horovd train.py", "knows"),
        ("python -m smddp_tf.timeline merge --kep /tmp/a", "smddp_tf/timeline.py has no option --kep"),
        ("smddprun -np 2 python examples/benchmark.py --modle mlp", "examples/benchmark.py has no option --modle"),
        ("make tests", "make has no target tests"),
        ("python -c 'print('", "never closed"),
    ],
)
def test_mistakes_are_found(command: str, problem: str) -> None:
    assert problem in problem_of(command)


# What makes a command small whose output a document shows.
SMALLER = {"--model resnet50 --batch-size 8 --steps 10": "--model mlp --width 16 --batch-size 8 --steps 10 --warmup 1"}


def stable(lines: list[str]) -> list[str]:
    """The lines without the label of their rank; measured numbers, the model's name and its unit are replaced."""
    texts = (re.sub(r"^\[\d+\]<stdout>: ", "", line).strip() for line in lines if not line.startswith("smddprun: "))
    return [re.sub(r"[\d.]+(?=%| \w+/s|, 10 % above)|(images|samples)(?=/s)|resnet50|mlp", "*", text) for text in texts]


@pytest.mark.parametrize(
    "shown", [each for each in COMMANDS if each.output and each.page != "docs/index.md"], ids=lambda each: each.page
)
def test_the_output_shown_is_what_is_printed(shown: Shown) -> None:
    text = shown.text
    for large, small in SMALLER.items():
        text = text.replace(large, small)
    program, *arguments = shlex.split(text, comments=True)
    assert program == "smddprun", "a command whose output is shown must be one that this test can run"
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])  # `python` is that of the environment
    job = launch(["-m", "smddp_tf.run", *arguments], None, timeout=120, env={"PATH": path})
    printed = job.check().output
    assert not set(stable(shown.output)) - set(stable(printed.splitlines()))
    if "examples/benchmark.py" in arguments:
        check_rates(printed, "mlp")
