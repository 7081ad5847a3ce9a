"""diagnose: all rules on one recording."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from smddp_tf.insight.finding import Finding, Rule
from smddp_tf.insight.recording import NotSeen, Recording, load
from smddp_tf.insight.report import text_of
from smddp_tf.insight.rules import RULES, hosts


class Result(NamedTuple):
    """The result of one rule: `status` is "fired", "quiet", or "not seen here" with the reason."""

    rule: Rule
    findings: list[Finding]
    status: str
    reason: str = ""


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """The result of `diagnose`; `print` shows it as `smddprun --diagnose` does."""

    recording: Recording
    results: list[Result]

    @property
    def findings(self) -> list[Finding]:
        """The findings of all rules, the one that costs most time first."""
        return sorted((each for result in self.results for each in result.findings), key=lambda each: -each.lost)

    @property
    def job(self) -> dict[str, Any]:
        """Ranks, hosts, steps, and what was not recorded."""
        recording, facts = self.recording, self.recording.facts.values()
        begin = min(each["started"] for each in facts)
        tables = (*recording.steps.values(), *recording.processes.values())
        return {
            "ranks": recording.size,
            "without_recording": sorted(set(range(recording.size)) - set(recording.facts)),
            "hosts": sorted({each["host"] for each in facts}),
            "steps": max(int(table["step"].size) for table in recording.steps.values()),
            "seconds": max(float(table["time"].max(initial=begin)) for table in tables) - begin,
            "ended": all(each["ended"] for each in facts),
            "versions": next(iter(facts))["versions"],
        }

    def to_json(self) -> str:
        """Findings with their figures, rules with their parameters, and percentiles of each host."""
        document = {
            "format": 1,
            "job": self.job,
            "findings": [{**dataclasses.asdict(f), "severity": f.severity, "where": f.where} for f in self.findings],
            "rules": [
                {"rule": r.rule.name, "status": r.status, "reason": r.reason, "parameters": r.rule.parameters}
                for r in self.results
            ],
            "hosts": hosts.usage(self.recording),
        }
        return json.dumps(document, indent=1)

    def __str__(self) -> str:
        return text_of(self)


def diagnose(folder: str | Path, rules: Iterable[Rule] = RULES) -> Diagnosis:
    """Looks in a recording for what slows the job down. Call it anywhere, also while the job runs.

    Example:
    >>> model.fit(dataset, callbacks=[hvd.callbacks.Diagnose("recording")])
    >>> for finding in hvd.insight.diagnose("recording").findings:
    ...     print(finding.severity, finding.where, finding.what, finding.evidence, finding.advice)

    Args:
        folder: the one that `smddprun --monitor` or `hvd.callbacks.Diagnose` has written to.
        rules: those to use, such as `[step_outlier(n_outliers=3)]` of `smddp_tf.insight.rules`. Defaults to all, with
            the published parameters.

    Returns:
        A `Diagnosis`. Its `findings` are sorted, worst first.

    Raises:
        NoRecording: the folder holds no recording.
    """
    recording = load(folder)
    results = [_result(rule, recording) for rule in rules]
    fired = [finding for result in results for finding in result.findings]
    return Diagnosis(recording, [_without_explained(result, fired) for result in results])


def _result(rule: Rule, recording: Recording) -> Result:
    try:
        found = rule.findings(recording)
    except NotSeen as reason:
        return Result(rule, [], "not seen here", str(reason))
    return Result(rule, found, "fired" if found else "quiet")


def _without_explained(result: Result, fired: list[Finding]) -> Result:
    """Without findings that are only what the fault of another rule looks like."""
    causes = [each for each in fired if each.rule in result.rule.explained_by]
    kept = [f for f in result.findings if not any(None in (f.host, c.host) or f.host == c.host for c in causes)]
    if kept or not result.findings:
        return result._replace(findings=kept)
    return Result(result.rule, [], "quiet", "explained by " + ", ".join(sorted({each.rule for each in causes})))
