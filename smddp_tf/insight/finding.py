"""What a rule is, and what it has found. The sentences of findings are in `texts.yaml`."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import yaml

if TYPE_CHECKING:
    from smddp_tf.insight.recording import Recording


class NotSeen(Exception):
    """Raised by a rule that this recording cannot answer. Says why."""


@dataclass(frozen=True)
class Finding:
    """One fault: where it is, the figures that show it, and what to do about it."""

    lost: float  # of the job's time, estimated, from 0 to 1
    figures: dict[str, Any] = field(default_factory=dict)
    host: str | None = None
    rank: int | None = None
    step: int | None = None  # the first one
    case: str = ""  # of several texts
    rule: str = ""  # filled in by `diagnose`

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
    def what(self) -> str:
        """The fault in a sentence."""
        return self._text("what")

    @property
    def evidence(self) -> str:
        """The figures in sentences."""
        return self._text("evidence")

    @property
    def advice(self) -> str:
        """What to do."""
        return self._text("advice")

    def _text(self, part: str) -> str:
        text = _texts()[self.rule][part]
        text = text[self.case] if isinstance(text, dict) else text
        return str(text).format(rank=self.rank, step=self.step, **self.figures).strip()


@dataclass(frozen=True)
class Rule:
    """Looks for one fault. Its parameters are its fields."""

    explained_by: ClassVar[tuple[str, ...]] = ()  # rules whose faults look like this one, on the same host

    @property
    def name(self) -> str:
        """That of the class."""
        return type(self).__name__

    def check(self, recording: Recording) -> Iterator[Finding]:
        """What it finds. Raises `NotSeen` where the recording cannot tell."""
        raise NotImplementedError


@functools.cache
def _texts() -> dict[str, Any]:
    return dict(yaml.safe_load(Path(__file__).with_name("texts.yaml").read_text(encoding="utf-8")))
