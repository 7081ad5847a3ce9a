"""`smddprun --diagnose`: what it prints and writes, its exit codes; report.html in a browser."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from smddp_tf.insight.rules import RULES
from smddp_tf.run import cli
from tests.insight.written_recording import WrittenRecording
from tests.support.browser import needs_chromium, seen_in


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a job with two faults, on a host whose name is no HTML."""
    job = WrittenRecording(hosts=1, local=3)
    job.name = lambda _: "<b>&host"  # type: ignore[method-assign]
    job.computation[1, 200:] += 0.3
    job.input[2, 25::50] += 4.0
    return job.write(tmp_path_factory.mktemp("recording"))


@pytest.fixture(scope="module")
def diagnosed(recording: Path) -> tuple[Path, str]:
    """Its folder after `--diagnose`, which takes long for the pictures, and what that printed."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert run("--diagnose", recording) == 0
    return recording, out.getvalue()


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main([str(argument) for argument in arguments])
    return int(ended.value.code or 0)


def test_findings_are_printed_worst_first(diagnosed: tuple[Path, str]) -> None:
    out = " ".join(diagnosed[1].split())
    first, second = out.index("Rank 1 is late"), out.index("Some steps take much longer")
    assert first < second
    assert "LateRank, rank 1 on <b>&host, about " in out
    assert "BatchSize (no host has a GPU)" in out


def test_json(diagnosed: tuple[Path, str]) -> None:
    report = json.loads((diagnosed[0] / "report.json").read_text())
    late, outlier = report["findings"]
    assert (late["rule"], late["rank"], late["host"], late["case"]) == ("LateRank", 1, "<b>&host", "computation")
    assert late["figures"]["mine"] > late["figures"]["others"] > 100
    assert outlier["rule"] == "StepOutlier"
    assert late["severity"] in ("high", "medium")
    assert [each["rule"] for each in report["rules"]] == [rule.name for rule in RULES]
    assert report["rules"][0]["parameters"]["patience"] == 100
    assert set(report["hosts"]["<b>&host"]["CPU %"]) == {"p50", "p95", "p99"}
    assert report["job"]["ranks"] == 3


def test_exit_codes(recording: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    healthy = WrittenRecording(hosts=1).write(tmp_path_factory.mktemp("healthy"))
    assert run("--diagnose", recording, "--strict") == 3
    assert run("--diagnose", healthy, "--strict") == 0


def test_no_recording(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--diagnose", tmp_path) == 1
    assert re.fullmatch(r"smddprun: \S+ holds no recording\. Record a job with: .*\n", capsys.readouterr().err)


def test_strict_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--strict", "true") == 1
    assert "--strict needs a recording to look at" in capsys.readouterr().err


def test_without_matplotlib(
    recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = shutil.copytree(recording, tmp_path / "copy", ignore=shutil.ignore_patterns("report.*"))
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "smddp_tf.insight.pictures", raising=False)
    assert run("--diagnose", copy) == 0
    out, err = capsys.readouterr()
    assert "Rank 1 is late" in out
    assert (copy / "report.json").exists()
    assert not (copy / "report.html").exists()
    assert "report.html needs matplotlib: pip install 'smddp-tf[insight]'" in err


def test_it_needs_no_tensorflow(recording: Path) -> None:
    code = (
        "import sys; sys.modules['tensorflow'] = sys.modules['psutil'] = None\n"
        f"import smddp_tf.run.cli as cli; cli.main(['--diagnose', {str(recording)!r}])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "Rank 1 is late" in done.stdout


def test_the_page_holds_all_that_it_shows(diagnosed: tuple[Path, str]) -> None:
    page = (diagnosed[0] / "report.html").read_text()
    assert len(page) < 1_000_000
    assert not re.findall(r'(?:src|href)="(?:https?:)?//', page)
    assert "<b>&host" not in page
    assert page.count("<svg") == 3


@needs_chromium
def test_the_page_in_a_browser(diagnosed: tuple[Path, str], tmp_path_factory: pytest.TempPathFactory) -> None:
    # The page as it was laid out: what has no size is not seen.
    script = (
        "document.title = [...document.querySelectorAll('.finding, svg')]"
        ".map(e => e.getBoundingClientRect()).every(r => r.width > 300 && r.height > 50)"
        " + ' ' + (document.documentElement.scrollWidth <= innerWidth)"
    )
    page = seen_in(diagnosed[0] / "report.html", script, tmp_path_factory.mktemp("profile"), "1000,800")
    assert "<title>true true</title>" in page, page[:500]
    text = re.sub(r"<[^>]*>", " ", page)
    for seen in ("Rank 1 is late", "Some steps take much longer", "waiting for gradients", "1 on &lt;b&gt;&amp;host"):
        assert seen in text
