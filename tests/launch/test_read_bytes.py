"""Four ranks on eight files read the data once in all when they are cut by file, as Linux counts it."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.storage import FILES, RECORD_BYTES, RECORDS
from tests.launch.mpirun import launch

RANKS = 4
TOTAL = FILES * RECORDS * RECORD_BYTES


def test_files_are_read_once_in_all(tmp_path: Path) -> None:
    data, answers = tmp_path / "data", tmp_path / "answers"
    data.mkdir()
    answers.mkdir()
    launch(["-m", "benchmarks.storage", "--folder", answers, "--data", data], RANKS, timeout=180).check()
    of_ranks = [json.loads((answers / f"{rank}.json").read_text(encoding="utf-8")) for rank in range(RANKS)]
    for way, least, most in (("element", RANKS, RANKS * 1.02), ("file", 1, 1.02), ("auto", 1, 1.02)):
        read = [answer[way]["read"] for answer in of_ranks]
        assert least <= sum(read) / TOTAL <= most, (way, read)
        assert max(read) <= 1.02 * min(read), (way, read)  # the files are equally large
        numbers = [number for answer in of_ranks for number in answer[way]["numbers"]]
        assert sorted(numbers) == list(range(FILES * RECORDS))
