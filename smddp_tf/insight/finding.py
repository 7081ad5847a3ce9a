"""What a rule has found."""

from __future__ import annotations

from dataclasses import dataclass


class NotSeen(Exception):
    """Raised by a rule that this recording cannot answer. Says why."""


@dataclass(frozen=True)
class Finding:
    """One fault, where it is, what shows it, and what to do about it."""

    what: str
    evidence: str
    advice: str
    lost: float  # of the job's time, estimated, from 0 to 1
    host: str | None = None
    rank: int | None = None
    step: int | None = None  # the first one
    rule: str = ""  # filled in by `diagnose`

    @property
    def severity(self) -> str:
        """`high` where at least 30 % of the time is lost, `medium` from 10 % on, `low` below."""
        return "high" if self.lost >= 0.3 else "medium" if self.lost >= 0.1 else "low"

    @property
    def where(self) -> str:
        """The rank and the host, as far as they are known."""
        named = [f"rank {self.rank}"] if self.rank is not None else []
        return " on ".join(named + [self.host] * bool(self.host)) or "the job"
