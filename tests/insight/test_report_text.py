"""A diagnosis as text, of written recordings."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from smddp_tf.insight import diagnose
from smddp_tf.insight.report import heading, show, text_of
from tests.insight.written_recording import WrittenRecording


@pytest.fixture(scope="module")
def late(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of which rank 1 is late, without the one of rank 2."""
    job = WrittenRecording(hosts=1, local=3)
    job.computation[1, 200:] += 0.3
    job.ended = False
    folder = job.write(tmp_path_factory.mktemp("late"))
    for file in folder.glob("*2*"):
        if "rank" in file.name:
            file.unlink()
    return folder


def test_the_first_line_says_what_was_recorded_and_what_not(late: Path, tmp_path: Path) -> None:
    assert heading(diagnose(late)) == (
        "3 ranks on one host, 600 steps in 422 s. The recording has no end. There is no recording of ranks 2."
    )
    assert heading(diagnose(WrittenRecording(hosts=3, local=1).write(tmp_path))).startswith("3 ranks on 3 hosts, 600 ")


def test_a_finding_has_its_place_its_evidence_and_its_advice(late: Path) -> None:
    diagnosis = diagnose(late)
    (found,) = diagnosis.findings
    text = " ".join(text_of(diagnosis).split())
    title = f"{found.severity.upper()}: {found.what} LateRank, rank 1 on node-0, {found.cost}"
    assert f"{title} {found.evidence} {found.advice}" in text
    assert "fired: LateRank quiet: " in text
    assert "BatchSize (no host has a GPU)" in text


def test_a_healthy_job_is_told_so(tmp_path: Path) -> None:
    text = text_of(diagnose(WrittenRecording().write(tmp_path)))
    assert "\nNo rule has found anything.\n" in text
    assert "\nfired: no rule\n" in text


def test_text_has_no_colours_and_a_terminal_has(late: Path) -> None:
    shown = io.StringIO()
    show(diagnose(late), Console(file=shown, force_terminal=True, color_system="standard", width=100))
    assert "\x1b[1;31mHIGH" in shown.getvalue()
    assert "\x1b" not in text_of(diagnose(late))
