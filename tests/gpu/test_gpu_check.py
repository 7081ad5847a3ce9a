"""`make gpu-check` runs, on a GPU made of host memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.gpu.judge import LATE_RANK
from benchmarks.gpu.kernels import FLOATS, INTEGERS, MODEL_PAIRS, MODELS, RANDOM_PARTS, SCALINGS

ROOT = Path(__file__).resolve().parents[2]
FOREIGN = ("SMDDP_", "FAKE_GPU_", "OMPI_", "PMIX_")
PARTS = ("kernels", "bandwidth", "ranks 2 host", "ranks 2 nccl on one GPU")


def comparisons() -> int:
    """How many a dry run makes: of one random list and of the models."""
    packs, unpacks = 2, 1  # of a pack also the bytes behind it
    random = (packs * (1 + RANDOM_PARTS) + unpacks) * (len(FLOATS) ** 2 * len(SCALINGS) + len(INTEGERS))
    return random + (packs + unpacks) * len(MODELS) * len(MODEL_PAIRS)


def test_the_program_runs_and_finds_nothing_wrong(tmp_path):
    command = [sys.executable, "-m", "benchmarks.gpu", "--dry-run", "--in-place", "--tensorflow", "none"]
    command += ["--only", ",".join(PARTS), "--folder", str(tmp_path)]
    clean = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    done = subprocess.run(command, cwd=ROOT, env=clean, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (results,) = tmp_path.glob("*-gpu.json")
    report = json.loads(results.read_text(encoding="utf-8"))
    assert report["fake"]
    assert {name: report["parts"][name]["state"] for name in PARTS} == dict.fromkeys(PARTS, "ok")
    answers = [report["parts"][name]["answer"] for name in PARTS]
    assert answers[0]["cases"] == comparisons()
    assert answers[0]["left_out"] == []
    assert [answer.get("wrong") for answer in answers[:2]] == [0, 0]
    for answer in answers[2:]:
        assert [row["wrong"] for rank in answer["ranks"] for row in rank["rows"]] == [0] * 4
        assert answer["ranks"][0]["later_work_seconds"] < LATE_RANK
    assert [report["parts"][name]["way"] for name in PARTS[2:]] == ["", "nccl"]  # nothing to agree on about `host`
    assert "===== kernels" in results.with_suffix(".log").read_text(encoding="utf-8")
    table = results.with_suffix(".md").read_text(encoding="utf-8")
    assert "**MISS**" not in table
    assert "not measured" not in table
