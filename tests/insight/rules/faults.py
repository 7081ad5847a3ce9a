"""Faults of written recordings, and what each of them must bring: for the tests of the rules, each with its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Optional

from smddp_tf.insight import Finding, diagnose
from tests.insight.written_recording import WrittenRecording

Where = tuple[str, Optional[str], Optional[int]]  # rule, host, rank
# What makes it, the number of GPUs of a host, and all that is found then.
Fault = tuple[Callable[[WrittenRecording], None], int, set[Where]]


def fires_alone(fault: Fault, folder: Path) -> None:
    """Asserts that the fault fires its rule and no other."""
    inject, gpus, expected = fault
    job = WrittenRecording(gpus=gpus)
    inject(job)
    found = diagnose(job.write(folder)).findings
    assert {(each.rule, each.host, each.rank) for each in found} == expected
    for each in found:
        assert each.evidence
        assert each.advice
        assert 0 <= each.lost <= 1


def only_finding(job: WrittenRecording, folder: Path) -> Finding:
    """The one that all rules have."""
    (found,) = diagnose(job.write(folder)).findings
    return found
