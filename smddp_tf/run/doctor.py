"""`smddprun --doctor`: `hvd.doctor()` on the ranks of a job."""

from __future__ import annotations

import sys

import click

from smddp_tf.checks.doctor import doctor
from smddp_tf.run.function import payload_of, results_of
from smddp_tf.run.hosts import Host
from smddp_tf.run.settings import Settings

HERE = (Host("localhost", 2),), 2  # hosts and ranks, where nothing says how many


def run_doctor(settings: Settings) -> int:
    """Prints what the ranks of `settings` find; returns 1 where there is an error."""
    findings = results_of(settings, payload_of(doctor, (), {}), sys.executable)[0]
    click.echo("\n".join(map(str, findings)))
    return int(any(finding.level == "error" for finding in findings))
