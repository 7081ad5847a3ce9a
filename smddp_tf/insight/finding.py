"""Rules and their findings. The parameters and the sentences are in `rules.yaml`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import yaml

from smddp_tf.insight.recording import Recording

Parameters = SimpleNamespace  # of a rule, with their names in `rules.yaml`


@dataclass(frozen=True)
class Finding:
    """One fault: where it is, the figures that show it, and what to do about it. `described` adds the last fields."""

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

    def described(self, rule: Rule) -> Finding:
        """Returns the finding with its sentences, and with the rule's parameters among the figures."""
        figures, texts = {**rule.parameters, **self.figures}, {}
        for part in ("what", "evidence", "advice"):
            text = _table()[rule.name][part]
            text = text[self.case] if isinstance(text, dict) else text
            texts[part] = text.format(rank=self.rank, step=self.step, **figures)
        return replace(self, rule=rule.name, figures=figures, **texts)


@dataclass(frozen=True)
class Rule:
    """Looks for one fault; `step_outlier(n_outliers=2)` is a rule with another value of a parameter.

    `check` yields what it finds in a recording, with the parameters as attributes of its second argument. It raises
    `NotSeen` where the recording cannot tell.
    """

    name: str
    check: Callable[[Recording, Parameters], Iterator[Finding]]
    parameters: dict[str, float]
    explained_by: Sequence[str] = ()  # rules whose faults look like this one, on the same host

    def __call__(self, **parameters: float) -> Rule:
        if unknown := sorted(parameters.keys() - self.parameters.keys()):
            raise TypeError(f"{self.name} has the parameters {', '.join(self.parameters)}. Received: {unknown}.")
        return replace(self, parameters={**self.parameters, **parameters})

    def findings(self, recording: Recording) -> list[Finding]:
        """All that it finds, in sentences. Raises `NotSeen`."""
        return [each.described(self) for each in self.check(recording, Parameters(**self.parameters))]


def rule(name: str) -> Callable[[Callable[[Recording, Parameters], Iterator[Finding]]], Rule]:
    """Makes a rule of its `check`, with what `rules.yaml` has for this name."""
    return lambda check: Rule(name, check, _table()[name]["parameters"], _table()[name].get("explained_by", ()))


@functools.cache
def _table() -> dict[str, Any]:
    fastest = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # importing smddp_tf.keras waits for it
    return dict(yaml.load(Path(__file__).with_name("rules.yaml").read_text(encoding="utf-8"), fastest))
