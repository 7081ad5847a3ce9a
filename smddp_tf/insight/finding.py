"""What a rule is, and what it has found. The sentences of findings are in `texts.yaml`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml


class NotSeen(Exception):
    """Raised by a rule that this recording cannot answer. Says why."""


@dataclass(frozen=True)
class Finding:
    """One fault: where it is, the figures that show it, and what to do about it. `told` fills in the last fields."""

    lost: float  # of the job's time, estimated, from 0 to 1
    figures: dict[str, Any]
    host: str | None = None
    rank: int | None = None
    step: int | None = None  # the first one
    case: str = ""  # of several texts
    rule: str = ""
    what: str = ""
    evidence: str = ""
    advice: str = ""

    @property
    def severity(self) -> str:
        """`high` where at least 30 % of the time is lost, `medium` from 10 % on, `low` below."""
        return "high" if self.lost >= 0.3 else "medium" if self.lost >= 0.1 else "low"

    @property
    def where(self) -> str:
        """The rank and the host, as far as they are known."""
        named = [f"rank {self.rank}"] if self.rank is not None else []
        return " on ".join(named + ([self.host] if self.host else [])) or "all ranks"

    @property
    def cost(self) -> str:
        """`lost` in words."""
        return f"about {100 * self.lost:.0f} % of the time" if self.lost > 0 else "at an unknown cost"

    def told(self, rule: Rule) -> Finding:
        """The same in sentences, with the rule's parameters among the figures."""
        figures, texts = {**rule.parameters, **self.figures}, {}
        for part, text in _texts()[rule.name].items():
            text = text[self.case] if isinstance(text, dict) else text
            texts[part] = text.format(rank=self.rank, step=self.step, **figures)
        return replace(self, rule=rule.name, figures=figures, **texts)


@dataclass(frozen=True)
class Rule:
    """Looks for one fault; `step_outlier(n_outliers=2)` is a rule with another value of a parameter.

    Attributes:
        check: yields what it finds in a recording. Raises `NotSeen` where the recording cannot tell.
        parameters: the other arguments of `check`.
        explained_by: rules whose faults look like this one, on the same host.
    """

    name: str
    check: Callable[..., Iterator[Finding]]
    parameters: dict[str, float]
    explained_by: tuple[str, ...]

    def __call__(self, **parameters: float) -> Rule:
        if unknown := sorted(parameters.keys() - self.parameters.keys()):
            raise TypeError(f"{self.name} has the parameters {', '.join(self.parameters)}. Received: {unknown}.")
        return replace(self, parameters={**self.parameters, **parameters})


def rule(name: str, explained_by: tuple[str, ...] = ()) -> Callable[[Callable[..., Iterator[Finding]]], Rule]:
    """Makes a rule of a function of a recording; the defaults of its other arguments are the parameters."""

    def made(check: Callable[..., Iterator[Finding]]) -> Rule:
        _, *others = inspect.signature(check).parameters.values()
        return Rule(name, check, {each.name: each.default for each in others}, explained_by)

    return made


@functools.cache
def _texts() -> dict[str, Any]:
    return dict(yaml.safe_load(Path(__file__).with_name("texts.yaml").read_text(encoding="utf-8")))
